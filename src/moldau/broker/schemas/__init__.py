"""Schemas that topics declare: known from settings and from `_schemas`, enforced at Produce."""
