"""Pipelines: PySpark files with a `main(spark)`. Run, list, stop and dry-run them; nothing here prints."""
