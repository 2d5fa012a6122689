"""The process that forks Spark's Python workers for tasks, with our imports done (`spark.python.daemon.module`).

PySpark's own daemon imports nothing, so that no library starts a thread before a fork, and each worker imports
everything anew: most of a second, and 70 MB that forked workers share. What is imported here starts no thread either,
with this variable and the OMP_NUM_THREADS=1 that Spark sets (tests/spark/test_workers.py).
"""

import os

ARROW_ALLOCATOR = "JE_ARROW_MALLOC_CONF"


def import_tasks() -> None:
    """Import what tasks need. Before anything else has imported PyArrow."""
    os.environ.setdefault(ARROW_ALLOCATOR, "background_thread:false")
    import pyspark.worker  # noqa: F401

    import moldau.spark.sink.tasks
    import moldau.spark.source.task  # noqa: F401
    from moldau.spark.workers import freeze_imports

    freeze_imports()


if __name__ == "__main__":
    from pyspark.daemon import manager

    import_tasks()
    manager()
