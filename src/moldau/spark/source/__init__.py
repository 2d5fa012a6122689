"""Reading topics from Spark: offsets, tasks, and what becomes of records that do not fit."""
