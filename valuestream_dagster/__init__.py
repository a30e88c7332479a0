"""valuestream: delivery intake on Dagster."""
