"""Keeps a running pipeline's record up to date, from whatever thread something is told."""

import json
import threading
from dataclasses import replace
from typing import Any

from moldau.spark.pipelines.places import Place, Record, State, now_ms, write_record
from moldau.spark.pipelines.summary import summarize

AT_MOST_EVERY_MS = 200  # batches may be quicker than anybody looks


class Keeper:
    """The one writer of a record."""

    def __init__(self, place: Place, record: Record) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._record = record
        self._written_ms = 0
        write_record(place, record)

    def tell(self, state: State, reason: str = "") -> None:
        with self._lock:
            ended = None if state in (State.STARTING, State.RUNNING, State.STOPPING) else now_ms()
            self._record = replace(self._record, state=state, reason=reason, ended_ms=ended)
            write_record(self._place, self._record)

    def started(self, event: Any) -> None:
        name = event.name or str(event.id)
        if self._record.state is State.STARTING:
            self.tell(State.RUNNING)
        self._take(name, {"id": str(event.id), "run_id": str(event.runId)}, at_once=True)

    def progressed(self, event: Any) -> None:
        progress = json.loads(event.progress.json)
        self._take(progress.get("name") or str(progress.get("id")), summarize(progress))

    def _take(self, name: str, summary: dict[str, Any], *, at_once: bool = False) -> None:
        with self._lock:
            self._record = replace(self._record, queries={**self._record.queries, name: summary})
            now = now_ms()
            if at_once or now - self._written_ms >= AT_MOST_EVERY_MS:
                self._written_ms = now
                write_record(self._place, self._record)
