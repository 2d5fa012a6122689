"""Helpers for tests of HTTP services."""
