"""Producer of columns of records: partitions, encodes and sends them, with or without idempotence.

`transactions` adds transactions; `sender` sends the batches.

    producer = Producer(cluster, codec=Codec.ZSTD)
    problem = producer.start() or producer.write("orders", keys, values) or producer.flush()

A failure is final: close the producer and create a new one; undelivered records are lost. A batch that a broker
rejects as too large is split, and later batches are smaller; a single record that is too large is a failure.
"""

import time
from collections.abc import Sequence
from itertools import count
from operator import itemgetter
from typing import Final, Self, TypeVar

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import Cluster, Topic
from moldau.client.direct.partitioning import Column, Partitioner, by_partition
from moldau.client.direct.records import BATCH_BYTES, Headers, ProducerIdAndEpoch, decode, encode, next_sequence
from moldau.client.direct.sender import REQUEST_BYTES, ProducerBatch, Sender
from moldau.wire.batch import read_header
from moldau.wire.compression import Codec
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

Item = TypeVar("Item")

MIN_BATCH_BYTES: Final = 1024
WHATEVER_FITS: Final = 2**31 - 1  # no batch reaches this size


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
        request_bytes: int | None = None,
        delivery_timeout_s: float | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """`request_bytes` limits a request and a record; `delivery_timeout_s` limits the time without progress.

        With acks=0 there is no response: sent records count as delivered.
        """
        if acks not in (-1, 0, 1):
            raise ValueError("acks must be -1 (all), 0 or 1")
        if idempotent and acks != -1:
            raise ValueError("an idempotent producer needs acks=-1 (all)")
        self.cluster = cluster
        self.written = 0  # records delivered
        self.failure: Failure | None = None
        self._codec, self._level = codec, level
        self._idempotent = idempotent
        self._batch_bytes = min(batch_bytes, request_bytes or batch_bytes)
        self._request_bytes = request_bytes
        self._smaller: dict[str, int] = {}  # batch size of topics that rejected larger batches
        self._writer = ProducerIdAndEpoch()
        self._partitioners: dict[str, Partitioner] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._order = count()
        self._sender = Sender(
            cluster,
            acks=acks,
            transactional_id=transactional_id,
            request_bytes=request_bytes or REQUEST_BYTES,
            timeout_s=delivery_timeout_s,
            delivered=self._delivered,
            split=self._split,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Records that were not flushed may be lost."""
        self._sender.close()

    def start(self) -> Failure | None:
        """Get a producer id, if idempotent."""
        if not self._idempotent:
            return None
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        response = self.cluster.ask_any(request, InitProducerIdResponse, lambda reply: reply.error_code)
        if isinstance(response, Failure):
            return self._fail(response)
        self._set_producer_id(ProducerIdAndEpoch(response.producer_id, response.producer_epoch))
        return None

    def write(
        self,
        topic: str,
        keys: Column,
        values: Column,
        timestamps: Sequence[int] | None = None,
        headers: Sequence[Headers] | None = None,
        partitions: Sequence[int | None] | None = None,
    ) -> Failure | None:
        """Send records. Errors may be returned by a later call, at the latest by `flush`.

        `timestamps` default to now. A record without partition gets one by its key, as in Java. Brokers may create
        a missing topic.
        """
        if self.failure is not None:
            return self.failure
        if self._idempotent and self._writer.producer_id < 0:
            raise RuntimeError("call start() before write()")
        if timestamps is None:
            timestamps = [time.time_ns() // 1_000_000] * len(values)
        found = self.cluster.topic(topic, create=True)
        if isinstance(found, Failure):
            return self._fail(found)
        outgoing = []
        for partition, rows in self._rows(found, keys, values, partitions).items():
            outgoing += self._encode(TopicPartition(topic, partition), rows, keys, values, timestamps, headers)
        written = {batch.tp for batch in outgoing}
        problem = self._too_large(outgoing) or self._before_send(written) or self._sender.add(outgoing)
        return self._fail(problem) if problem is not None else None

    def flush(self) -> Failure | None:
        """Wait until all records are delivered."""
        if self.failure is not None:
            return self.failure
        problem = self._sender.push()
        return self._fail(problem) if problem is not None else None

    # ── internal, and for TransactionalProducer ─────────────────────────────────────────────────────────────────────

    def _before_send(self, partitions: set[TopicPartition]) -> Failure | None:
        """Hook: a transactional producer adds the partitions to its transaction."""
        return None

    def _fail(self, problem: Failure) -> Failure:
        self.failure = problem
        return problem

    def _set_producer_id(self, writer: ProducerIdAndEpoch) -> None:
        """Take a new producer id or epoch: sequence numbers restart at 0."""
        self._writer = writer
        self._sequences.clear()
        self.failure = None

    def _rows(
        self, topic: Topic, keys: Column, values: Column, partitions: Sequence[int | None] | None
    ) -> dict[int, Sequence[int]]:
        """Row numbers by partition."""
        if partitions is None:
            return self._partitioner(topic).rows(keys, values)
        given = [each for each in partitions if each is not None]
        if len(given) == len(partitions):
            return by_partition(given)
        assigned = self._partitioner(topic).assign(keys, values)
        return by_partition([other if own is None else own for own, other in zip(partitions, assigned, strict=True)])

    def _partitioner(self, topic: Topic) -> Partitioner:
        """Uses the partition count of the first write, so that a key keeps its partition."""
        if topic.name not in self._partitioners:
            self._partitioners[topic.name] = Partitioner(len(topic.leaders), self._batch_bytes)
        return self._partitioners[topic.name]

    def _encode(
        self,
        tp: TopicPartition,
        rows: Sequence[int],
        keys: Column,
        values: Column,
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
    ) -> list[ProducerBatch]:
        if len(rows) < len(values):
            keys, values, timestamps = _some(keys, rows), _some(values, rows), _some(timestamps, rows)
            headers = None if headers is None else _some(headers, rows)
        encoded = encode(
            keys,
            values,
            timestamps,
            headers,
            codec=self._codec,
            level=self._level,
            batch_bytes=self._smaller.get(tp.topic, self._batch_bytes),
            writer=self._writer,
            sequence=self._sequences.get(tp, 0) if self._idempotent else -1,
        )
        if self._idempotent and encoded:
            self._sequences[tp] = next_sequence(encoded[-1].sequence, encoded[-1].records)
        return [ProducerBatch(tp, each.data, (next(self._order),), each.records) for each in encoded]

    def _too_large(self, batches: Sequence[ProducerBatch]) -> Failure | None:
        """A batch above the limit has a single record."""
        for batch in batches:
            if self._request_bytes is not None and len(batch.data) > self._request_bytes:
                what = f"a record of {len(batch.data)} bytes for {batch.tp.topic}-{batch.tp.partition}"
                message = f"{what} is larger than a request may be (max.request.size, {self._request_bytes} bytes)"
                return Failure(WireError.MESSAGE_TOO_LARGE, WireError.MESSAGE_TOO_LARGE.name, message)
        return None

    def _split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Split into two batches with the same sequence numbers; empty for a single record."""
        if batch.records == 1:
            return []
        columns = decode([batch.data], checked=True)
        size = sum(len(each or b"") for each in (*columns.keys, *columns.values))
        topic = batch.tp.topic
        self._smaller[topic] = min(self._smaller.get(topic, self._batch_bytes), max(size // 2, MIN_BATCH_BYTES))
        sequence = read_header(batch.data, 0).base_sequence
        parts: list[ProducerBatch] = []
        for half in (slice(batch.records // 2), slice(batch.records // 2, None)):
            (part,) = encode(
                columns.keys[half],
                columns.values[half],
                columns.timestamps[half],
                columns.headers[half],
                codec=self._codec,
                level=self._level,
                batch_bytes=WHATEVER_FITS,
                writer=self._writer,
                sequence=sequence,
            )
            sequence = next_sequence(sequence, part.records) if sequence >= 0 else -1
            parts.append(ProducerBatch(batch.tp, part.data, (*batch.order, len(parts)), part.records))
        return parts

    def _delivered(self, batch: ProducerBatch) -> None:
        self.written += batch.records


def _some(column: Sequence[Item], rows: Sequence[int]) -> Sequence[Item]:
    if isinstance(rows, range):
        return column[rows.start : rows.stop]
    return itemgetter(*rows)(column) if len(rows) > 1 else [column[rows[0]]]
