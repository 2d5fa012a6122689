"""Runs a topology in this process, batch by batch on a virtual clock, for unit tests: no JVM, broker, file or clock."""
