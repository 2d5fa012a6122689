"""Spark for tests: driver processes, a standalone cluster, rows as records."""
