"""Clients that work while a cluster is disturbed; each file is one kind of client, `table` lists them all."""
