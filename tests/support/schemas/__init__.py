"""Schemas for tests: cases of compatibility in tables, and random ones."""
