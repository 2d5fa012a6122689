"""What a group member tells the test that started it: one JSON value per line on standard output.

A member is a process of its own, so that a test can kill or pause it. It gets its settings as one JSON argument, runs
until SIGTERM, and then leaves its group. Times are of the system's monotonic clock, which all processes share.
"""

import json
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

Place = tuple[str, int]  # a topic and a partition

leaving = threading.Event()
may_commit = threading.Event()


def settings() -> dict[str, Any]:
    """Of this member. From now on SIGTERM asks it to leave; one that is to `hold` its commits waits for SIGUSR1."""
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    signal.signal(signal.SIGUSR1, lambda *_: may_commit.set())
    given = json.loads(sys.argv[1])
    if not given.get("hold"):
        may_commit.set()
    return given


def consumer_settings(given: dict[str, Any], assignors: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments that the consumers of aiokafka and kafka-python have in common."""
    return {
        "bootstrap_servers": given["bootstrap"],
        "group_id": given["group"],
        "client_id": given["name"],
        "group_instance_id": given.get("instance"),
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": given["session_ms"],
        "heartbeat_interval_ms": given["heartbeat_ms"],
        "partition_assignment_strategy": (assignors[given["assignor"]],),
        "metadata_max_age_ms": 500,
        "fetch_max_wait_ms": 100,
    }


def tell(event: str, **what: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, "at": time.monotonic_ns(), **what}) + "\n")
    sys.stdout.flush()


class Owned:
    """The partitions that this member has now; each change is told as the whole set."""

    def __init__(self) -> None:
        self.places: set[Place] = set()

    def gain(self, places: Iterable[Place]) -> None:
        self.places |= set(places)
        self.tell()

    def become(self, places: Iterable[Place]) -> None:
        self.places = set(places)
        self.tell()

    def lose(self, places: Iterable[Place]) -> None:
        self.places -= set(places)
        self.tell()

    def tell(self) -> None:
        tell("owns", partitions=sorted(self.places))
