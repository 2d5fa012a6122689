"""Avro: schemas, their normal form, schema resolution as compatibility, and a walker over payloads."""
