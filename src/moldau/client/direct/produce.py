"""A producer of columns: chooses partitions, encodes batches, numbers them, sends them. Plain or idempotent.

`transactions` adds transactions to it; `sender` does the sending.

    producer = Producer(cluster, codec=Codec.ZSTD)
    problem = producer.start() or producer.write("orders", keys, values) or producer.flush()

A failure is final: what was not delivered is not, and the producer is to be closed and made anew.
"""

import time
from collections.abc import Sequence
from itertools import count
from typing import Self

from moldau.client.direct.failed import Failed
from moldau.client.direct.metadata import Cluster, Place
from moldau.client.direct.partitioning import Partitioner
from moldau.client.direct.records import BATCH_BYTES, Headers, Writer, encode, next_sequence
from moldau.client.direct.sender import Outgoing, Sender
from moldau.wire.compression import Codec
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

Column = Sequence[bytes | None]


class Producer:
    def __init__(
        self,
        cluster: Cluster,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        acks: int = -1,
        idempotent: bool = True,
        batch_bytes: int = BATCH_BYTES,
        transactional_id: str | None = None,
    ) -> None:
        if idempotent and acks != -1:
            raise ValueError("an idempotent producer needs acks=-1 (all)")
        if acks not in (-1, 1):
            raise ValueError("acks must be -1 (all) or 1: a producer that hears nothing cannot report anything")
        self.cluster = cluster
        self.written = 0  # records delivered
        self.failure: Failed | None = None
        self._codec, self._level = codec, level
        self._idempotent = idempotent
        self._batch_bytes = batch_bytes
        self._writer = Writer()
        self._partitioners: dict[str, Partitioner] = {}
        self._sequences: dict[Place, int] = {}
        self._order = count()
        self._counts: dict[int, int] = {}  # records of batches that are under way, by order
        self._sender = Sender(cluster, acks=acks, transactional_id=transactional_id, delivered=self._delivered)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends connections. What was not flushed may be lost."""
        self._sender.close()

    def start(self) -> Failed | None:
        """Gets an idempotent producer its id."""
        if not self._idempotent:
            return None
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = self.cluster.ask_any(request, InitProducerIdResponse, lambda reply: reply.error_code)
        if isinstance(answer, Failed):
            return self._fail(answer)
        self._become(Writer(answer.producer_id, answer.producer_epoch))
        return None

    def write(
        self,
        topic: str,
        keys: Column,
        values: Column,
        timestamps: Sequence[int] | None = None,
        headers: Sequence[Headers] | None = None,
        partitions: Sequence[int | None] | None = None,
    ) -> Failed | None:
        """Sends records; their answers may come later, at the latest with `flush`.

        Without timestamps it is now. Where a record's partition is not given its key decides, as in Java.
        """
        if self.failure is not None:
            return self.failure
        if self._idempotent and self._writer.producer_id < 0:
            raise RuntimeError("start() comes before write()")
        if timestamps is None:
            timestamps = [time.time_ns() // 1_000_000] * len(values)
        chosen = self._chosen(topic, keys, values, partitions)
        if isinstance(chosen, Failed):
            return self._fail(chosen)
        outgoing = []
        for partition, rows in _by_partition(chosen).items():
            outgoing += self._encode(Place(topic, partition), rows, keys, values, timestamps, headers)
        problem = self._about_to_send({batch.place for batch in outgoing}) or self._sender.add(outgoing)
        return self._fail(problem) if problem is not None else None

    def flush(self) -> Failed | None:
        """Waits until all that was written is delivered."""
        if self.failure is not None:
            return self.failure
        problem = self._sender.push()
        return self._fail(problem) if problem is not None else None

    # ── for transactions, and within ────────────────────────────────────────────────────────────────────────────────

    def _about_to_send(self, places: set[Place]) -> Failed | None:
        """A transactional producer tells its coordinator first."""
        return None

    def _fail(self, problem: Failed) -> Failed:
        self.failure = problem
        return problem

    def _become(self, writer: Writer) -> None:
        """A new id or epoch: sequences start at 0 again."""
        self._writer = writer
        self._sequences.clear()
        self.failure = None

    def _chosen(
        self, topic: str, keys: Column, values: Column, partitions: Sequence[int | None] | None
    ) -> Sequence[int] | Failed:
        if partitions is None:
            return self._partitions(topic, keys, values)
        given = [each for each in partitions if each is not None]
        if len(given) == len(partitions):
            return given
        assigned = self._partitions(topic, keys, values)
        if isinstance(assigned, Failed):
            return assigned
        return [own if own is not None else other for own, other in zip(partitions, assigned, strict=True)]

    def _partitions(self, topic: str, keys: Column, values: Column) -> list[int] | Failed:
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            found = self.cluster.topic(topic)
            if isinstance(found, Failed):
                return found
            partitioner = self._partitioners[topic] = Partitioner(len(found.leaders), self._batch_bytes)
        return partitioner.assign(keys, values)

    def _encode(
        self,
        place: Place,
        rows: Sequence[int],
        keys: Column,
        values: Column,
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
    ) -> list[Outgoing]:
        if len(rows) < len(values):
            keys, values = [keys[row] for row in rows], [values[row] for row in rows]
            timestamps = [timestamps[row] for row in rows]
            headers = None if headers is None else [headers[row] for row in rows]
        encoded = encode(
            keys,
            values,
            timestamps,
            headers,
            codec=self._codec,
            level=self._level,
            batch_bytes=self._batch_bytes,
            writer=self._writer,
            sequence=self._sequences.get(place, 0) if self._idempotent else -1,
        )
        if self._idempotent and encoded:
            self._sequences[place] = next_sequence(encoded[-1].sequence, encoded[-1].records)
        outgoing = [Outgoing(place, each.data, next(self._order)) for each in encoded]
        self._counts |= {batch.order: each.records for batch, each in zip(outgoing, encoded, strict=True)}
        return outgoing

    def _delivered(self, batch: Outgoing) -> None:
        self.written += self._counts.pop(batch.order)


def _by_partition(chosen: Sequence[int]) -> dict[int, Sequence[int]]:
    """The rows of each partition, in their order."""
    distinct = set(chosen)
    if len(distinct) == 1:
        return {distinct.pop(): range(len(chosen))}
    rows: dict[int, list[int]] = {partition: [] for partition in sorted(distinct)}
    for row, partition in enumerate(chosen):
        rows[partition].append(row)
    return dict(rows)
