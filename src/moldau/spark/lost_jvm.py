"""A lost JVM is one line: py4j logs a traceback to the root logger for each call that has failed since.

The calls themselves raise py4j's errors as before. `moldau pipeline run` writes the tracebacks to its log instead.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOST = (
    "Spark's JVM is gone; it may have been killed or run out of memory. Its session and its queries are gone, too: "
    "start the program again (a notebook: its kernel); queries resume from their checkpoints"
)
Handler = Callable[[logging.LogRecord], bool]  # of a record of py4j; False drops it

_handlers: list[Handler] = []  # the last one counts


def report_once() -> None:
    """From now on, in this process. The second call does nothing."""
    if not _handlers:
        _install(_TellOnce())


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """Inside the block give py4j's records to this one."""
    _install(handler)
    try:
        yield
    finally:
        _handlers.remove(handler)


def _install(handler: Handler) -> None:
    _handlers.append(handler)
    logging.getLogger().addFilter(_filter)  # once: the logger knows it


def _filter(record: logging.LogRecord) -> bool:
    if not _handlers or Path(record.pathname).parent.name != "py4j":
        return True
    return _handlers[-1](record)


class _TellOnce:
    """Replaces the first record by the sentence, and drops the others."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self, record: logging.LogRecord) -> bool:
        if record.exc_info is None or not isinstance(record.exc_info[1], Exception):  # not a lost connection
            return True
        if self._told:
            return False
        self._told = True
        record.msg, record.args, record.exc_info, record.exc_text = LOST, (), None, None
        return True
