"""One parser per manifest format: bytes in, core manifest out. No IO, no clock."""
