"""Tests of the demo, as its user runs it."""
