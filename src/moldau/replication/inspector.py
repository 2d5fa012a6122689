"""Inspector: how the records of a batch are inspected off the event loop, before the append.

By default in a thread, which recompresses, and looks for keys. A broker whose topics declare schemas has another, which
`Replicas` gives to every partition.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.base.errors import Refusal, WireError
from moldau.log.settings import LogConfig
from moldau.replication import inspection
from moldau.replication.inspection_queue import Inspected, in_thread

if TYPE_CHECKING:
    from moldau.replication.partition import Partition


class Arrival(NamedTuple):
    """A batch at the head of its partition's inspection queue."""

    partition: "Partition"
    batch: bytes
    config: LogConfig  # of the topic, when the batch came
    awaited: Callable[[], bool]  # False: a duplicate, or to be refused whatever its records are


class Inspector(Protocol):
    async def inspect(self, arrival: Arrival) -> Inspected:
        """The batch to append, or a refusal."""


class ThreadInspector:
    async def inspect(self, arrival: Arrival) -> Inspected:
        if arrival.config.checks_schemas:  # only a broker can: it knows the schemas
            return Refusal(WireError.INVALID_CONFIG, f"No schemas are known here for {arrival.partition.name}.")
        return await in_thread(partial(inspection.inspect, arrival.batch, arrival.config))()


IN_THREAD: Inspector = ThreadInspector()
