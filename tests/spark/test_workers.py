"""What Spark's Python workers have before their first task. Needs PySpark, but no JVM."""

import gc
import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

from moldau.spark import workers

REPORT = """
import gc, os, sys
from moldau.spark.daemon import import_tasks
import_tasks()
names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
print(len(names), names, gc.get_freeze_count() > 10_000, "moldau.spark.source.task" in sys.modules)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are listed on Linux")
def test_the_daemon_imports_what_tasks_need_and_starts_no_thread() -> None:
    """A lock that another thread holds at a fork stays locked in the worker."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHON_WORKER_FACTORY_SECRET": "a worker's"}
    found = subprocess.run([sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True, check=True)
    count, *rest = found.stdout.split()
    assert (count, rest[-2:]) == ("1", ["True", "True"]), found.stdout


def test_only_a_worker_freezes_its_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_freeze_count()
    workers.freeze_imports()
    assert gc.get_freeze_count() == before
    try:
        monkeypatch.setattr(workers, "_frozen_modules", 0)
        monkeypatch.setattr(workers, "is_worker", lambda: True)
        workers.freeze_imports()
        frozen = gc.get_freeze_count()
        kept = [[number] for number in range(100)]
        workers.freeze_imports()
        assert before < frozen == gc.get_freeze_count(), "once is enough"
        del kept
    finally:
        gc.unfreeze()
