"""Tests of what is published and how it is told."""
