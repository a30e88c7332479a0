"""The record of truth. The only room that opens a database for state."""
