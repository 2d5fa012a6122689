"""What clients do while a cluster is disturbed; each file is one sort of client, `table` has them all."""
