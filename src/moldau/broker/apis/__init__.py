"""One file per API: one function and one row in broker.table."""
