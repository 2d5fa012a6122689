"""`format("faulty")`: format("moldau") in processes that die at chosen places. Spark finds it by this module's name.

The option `faults` names a directory. Whoever comes to a place takes away one file that is named for it; the file whose
name ends in `kill` is the last thing that its process does.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from moldau.client.direct.produce import Producer
from moldau.client.direct.transactions import TransactionalProducer
from moldau.spark.datasource import MoldauDataSource
from moldau.spark.options import write_options
from moldau.spark.sink.record_writer import RecordWriter
from moldau.spark.sink.writers import StreamWriter, Written

OPTION = "faults"


def come_to(place: str, faults: str) -> None:
    for path in sorted(Path(faults).glob(f"{place}.*")):
        try:
            path.unlink()
        except FileNotFoundError:  # another process took it
            continue
        if path.suffix == ".kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return


class FaultyWriter(StreamWriter):
    def __init__(self, options: Any, schema: Any, faults: str) -> None:
        super().__init__(options, schema)
        self.faults = faults

    def write(self, iterator: Iterator[Any]) -> Written:
        after = {
            "written": (RecordWriter, "write"),
            "flushed": (RecordWriter, "flush"),
            "noted": (TransactionalProducer, "commit_offsets"),
            "ended": (TransactionalProducer, "commit"),
        }
        with ExitStack() as stack:
            for place, (owner, name) in after.items():
                stack.enter_context(patch.object(owner, name, self._then(getattr(owner, name), place)))
            return super().write(iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        come_to("returned", self.faults)
        super().commit(messages, batchId)
        come_to("finished", self.faults)

    def _then(self, method: Callable[..., Any], place: str) -> Callable[..., Any]:
        def called(owner: Any, *arguments: Any, **named: Any) -> Any:
            answer = method(owner, *arguments, **named)
            if place == "written":
                Producer.flush(owner._producer)  # so that there is something in the log
            come_to(place, self.faults)
            return answer

        return called


class DefaultSource(MoldauDataSource):
    def __init__(self, options: Any) -> None:
        given = {name: value for name, value in options.items() if name.lower() != OPTION}
        super().__init__(given)
        self.faults = options.get(OPTION, "")

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: Any, overwrite: bool) -> FaultyWriter:  # noqa: N802
        return FaultyWriter(write_options(self.options), schema, self.faults)
