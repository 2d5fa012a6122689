"""Log file of a pipeline: standard error of Spark's JVM, and stack traces."""

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.spark.lost_jvm import handled_by


@contextmanager
def redirect_child_stderr(file: Path) -> Iterator[None]:
    """Processes started inside the block write their standard error to the file; this process keeps its own."""
    ours = os.dup(2)
    stream = sys.stderr
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    kept = os.fdopen(ours, "w", buffering=1, closefd=False)
    os.dup2(log, 2)
    os.close(log)
    sys.stderr = kept
    try:
        yield
    finally:
        kept.flush()
        sys.stderr = stream
        os.dup2(ours, 2)
        os.close(ours)


def write_stack_trace(file: Path, title: str, error: BaseException | str) -> None:
    text = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    with file.open("a", errors="replace") as log:
        log.write(f"{title}\n{text}\n")


@contextmanager
def redirect_py4j_errors(file: Path) -> Iterator[None]:
    """Write what py4j logs about a lost JVM to the file."""

    def keep(record: logging.LogRecord) -> bool:
        write_stack_trace(
            file, record.getMessage(), record.exc_info[1] if record.exc_info and record.exc_info[1] else ""
        )
        return False

    with handled_by(keep):
        yield
