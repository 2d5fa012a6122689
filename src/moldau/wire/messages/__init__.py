"""One file per API: each message declared once, with its version ranges."""
