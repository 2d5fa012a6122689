"""The messages of each API, one file per API, declared once for all versions."""
