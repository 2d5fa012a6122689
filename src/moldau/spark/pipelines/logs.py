"""What Spark says goes to a file: a terminal is for the pipeline's own words."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def children_log_to(file: Path) -> Iterator[None]:
    """Processes that are started while this is entered have the file as standard error; this one keeps its own."""
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


def write_stack(file: Path, what: str, error: BaseException | str) -> None:
    """The whole story of a failure."""
    story = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    with file.open("a", errors="replace") as log:
        log.write(f"{what}\n{story}\n")
