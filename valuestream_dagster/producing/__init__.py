"""What a producer needs to hand over a delivery: payload first, manifest last. No deployment, ledger or Dagster."""
