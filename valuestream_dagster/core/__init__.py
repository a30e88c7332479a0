"""Pure rules over frozen values: no clock, no IO, no dagster, no duckdb, no boto3."""
