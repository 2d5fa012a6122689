"""Transactions as a pure machine: decide and apply. Knows no log, clock or socket."""
