"""Python workers of Spark: whether this process is one, and less garbage collection in it. Knows no query.

Spark collects garbage in a worker after each task and each call. A full collection goes through all objects of the
imported modules: 30 ms, or 55 ms with pandas, which a stream would pay for each process and batch.
"""

import gc
import os
import sys
from collections.abc import Mapping

WORKER = "PYTHON_WORKER_FACTORY_"  # how variables of a Python worker begin, and of none else

_frozen_modules = 0  # how many were imported at the last freeze


def is_worker(environment: Mapping[str, str] = os.environ) -> bool:
    return any(name.startswith(WORKER) for name in environment)


def freeze_imports() -> None:
    """Exclude what is imported by now from later collections; once, and again after more imports. Only in a worker."""
    global _frozen_modules
    if len(sys.modules) != _frozen_modules and is_worker():
        gc.collect()  # garbage that is frozen would stay
        gc.freeze()
        _frozen_modules = len(sys.modules)
