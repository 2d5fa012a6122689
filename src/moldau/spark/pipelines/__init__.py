"""Pipelines: plain PySpark files with a `main(spark)`, run, watched and stopped by `moldau pipeline`."""
