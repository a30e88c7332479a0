"""Tests of what people declare in YAML."""
