"""Tests of the record of truth."""
