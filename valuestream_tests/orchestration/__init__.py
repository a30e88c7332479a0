"""Tests of what Dagster is told and does; `server.py` runs the real processes."""
