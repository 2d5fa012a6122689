"""Denials: counted, logged in Kafka's words, and told to the audit.

A repeated line is counted, and written again after a minute.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from moldau.security.acls import Operation, ResourceType

logger = logging.getLogger("moldau.authorizer")

REPEAT_S = 60.0
SHOWN_LETTERS = 300  # of a name in the log
REMEMBERED_LINES = 1_000  # different ones; beyond that the oldest may be repeated earlier


@dataclass(slots=True)
class _Written:
    at: float
    repeats: int = 0


class DenialLog:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lines: dict[str, _Written] = {}  # the oldest first

    def write(self, line: str) -> int | None:
        """How often the line was repeated since it was last written; None: this is another repetition."""
        now = self._now()
        known = self._lines.get(line)
        if known is not None and now < known.at + REPEAT_S:
            known.repeats += 1
            return None
        if known is None and len(self._lines) >= REMEMBERED_LINES:
            del self._lines[next(iter(self._lines))]
        self._lines.pop(line, None)
        self._lines[line] = _Written(now)
        repeats = known.repeats if known else 0
        logger.info("%s%s", line, f" ({repeats} more times before)" if repeats else "")
        return repeats


class Denial(NamedTuple):
    """A denied operation, as it is logged: `repeats` are those since the last log line."""

    principal: str
    host: str
    listener: str
    client_id: str | None
    api: str
    operation: Operation
    resource: ResourceType
    name: str
    repeats: int = 0


class Denials:
    """Of one broker, by ACLs and by roles."""

    def __init__(self) -> None:
        self.count = 0
        self.on_denied: Callable[[Denial], None] | None = None  # called when a denial is logged
        self._log = DenialLog()

    def note(self, denial: Denial) -> None:
        self.count += 1
        repeats = self._log.write(
            f"Principal = {_shown(denial.principal)} is Denied operation = {denial.operation.name} "
            f"from host = {denial.host} on resource = {denial.resource.title}:LITERAL:{_shown(denial.name)} "
            f"for request = {denial.api}"
        )
        if repeats is not None and self.on_denied is not None:
            self.on_denied(denial._replace(repeats=repeats))


def _shown(name: str) -> str:
    """A name from the wire, which may be of any length and have line ends, in one line of a log."""
    return (name if name.isprintable() else name.encode("unicode_escape").decode())[:SHOWN_LETTERS]
