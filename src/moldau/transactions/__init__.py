"""Transactions as a pure state machine: decide and apply. No log, clock or socket."""
