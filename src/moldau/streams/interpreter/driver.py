"""`app.test()`: send records to the topics of a program, and read what it writes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from moldau.streams.interpreter.codec import Undecodable, decoder, encoder
from moldau.streams.interpreter.engine import Engine
from moldau.streams.operators.records import Record, millis_of, moment, row_of
from moldau.streams.operators.values import conform
from moldau.streams.sql.errors import StreamsError, did_you_mean
from moldau.streams.sql.evaluate import compiled, read_timestamp
from moldau.streams.topology.formats import Format
from moldau.streams.topology.models import to_dictionary
from moldau.streams.topology.nodes import Kind, Sink, Source, Topology
from moldau.streams.topology.windows import millis

START: Final = datetime(2026, 1, 1, tzinfo=UTC)  # of the virtual clock
MAX_ROUNDS: Final = 1000  # in which records go from one topic of the program to the next


class NoSuchTopic(StreamsError):
    """A test names a topic that the program does not read, or does not write."""


class PoisonRecord(StreamsError):
    """A record does not match its schema, and the program has no dead letters."""


class Result(NamedTuple):
    """A record that the program has written. A windowed key is a dictionary of key, start and end."""

    key: Any
    value: Any
    headers: tuple[tuple[str, bytes], ...] = ()


class _Sent(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    time: int
    headers: tuple[tuple[str, bytes], ...]


class Runs(Protocol):
    """What runs a topology batch by batch: the interpreter, or Spark."""

    def batch(self, sources: dict[Source, list[Record]]) -> dict[Sink, list[Record]]: ...

    def late(self) -> dict[str, int]: ...

    def close(self) -> None: ...


class TestDriver:
    """Runs a program in this process. Each record is a batch of its own, unless `batch()` collects several."""

    __test__ = False  # not a test of pytest

    def __init__(self, topology: Topology, engine: Runs | None = None) -> None:
        self._topology = topology
        self._engine = engine or Engine(topology)
        self._sources = {source.topic: source for source in topology.sources}
        self._sinks: dict[str, list[Sink]] = {}
        for sink in topology.sinks:
            self._sinks.setdefault(sink.topic, []).append(sink)
        self._read = {each.topic: _SourceReader(each) for each in topology.sources}
        self._written: dict[str, list[Result]] = {name: [] for name in self._outputs()}
        self._unread: dict[str, int] = dict.fromkeys(self._written, 0)
        self._offsets: dict[str, int] = {}
        self._waiting: list[_Sent] | None = None
        self.now = START

    def send(
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        *,
        timestamp: datetime | str | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Send a record: bytes as they are, all else in the topic's format. The clock gives the timestamp."""
        source = self._sources.get(topic)
        if source is None:
            raise NoSuchTopic(f"{self._topology.name} does not read topic {topic}{did_you_mean(topic, self._sources)}")
        time = millis_of(self.now) if timestamp is None else millis_of(_time(timestamp))
        named = tuple((headers or {}).items())
        sent = _Sent(topic, _bytes(key, source.key), _bytes(value, source.value), time, named)
        if self._waiting is not None:
            self._waiting.append(sent)
        else:
            self._run([sent])

    @contextmanager
    def batch(self) -> Iterator[None]:
        """What is sent within goes through the program at once, as in one batch of Spark."""
        if self._waiting is not None:
            raise StreamsError("a batch is inside another")
        self._waiting = []
        try:
            yield
        except BaseException:
            self._waiting = None
            raise
        sent, self._waiting = self._waiting, None
        self._run(sent)

    def advance(self, span: timedelta) -> None:
        """Move the clock: later records without a timestamp, and those with processing time, get the new one."""
        self.now += timedelta(milliseconds=millis(span, "the time to advance"))

    def read(self, topic: str) -> list[Result]:
        """What the program has written to a topic since the last read."""
        self._known(topic)
        new = self._written[topic][self._unread[topic] :]
        self._unread[topic] = len(self._written[topic])
        return new

    def table(self, topic: str) -> dict[Any, Any]:
        """The newest value of each key in a topic, as a reader of a compacted topic sees it.

        A windowed key is a tuple of key, start and end, and a struct a tuple of its fields.
        """
        self._known(topic)
        rows: dict[Any, Any] = {}
        for result in self._written[topic]:
            name = tuple(result.key.values()) if isinstance(result.key, dict) else result.key
            rows.pop(name, None)
            if result.value is not None:
                rows[name] = result.value
        return rows

    @property
    def topics(self) -> list[str]:
        """The topics that the program writes."""
        return list(self._written)

    @property
    def late(self) -> dict[str, int]:
        """How many records came too late for a window, by operator."""
        return self._engine.late()

    def close(self) -> None:
        """End what runs the program; the interpreter has nothing to end."""
        self._engine.close()

    def _known(self, topic: str) -> None:
        if topic not in self._written:
            raise NoSuchTopic(
                f"{self._topology.name} does not write to topic {topic}{did_you_mean(topic, self._written)}"
            )

    def _outputs(self) -> list[str]:
        return [*self._sinks, *([self._topology.dead_letters] if self._topology.dead_letters else [])]

    def _run(self, sent: list[_Sent]) -> None:
        for _ in range(MAX_ROUNDS):
            if not sent:
                return
            sent = self._round(sent)
        raise StreamsError(f"records went from topic to topic {MAX_ROUNDS} times: the program feeds itself")

    def _round(self, sent: list[_Sent]) -> list[_Sent]:
        """One batch; what it wrote to topics that the program reads itself."""
        batch: dict[Source, list[Record]] = {}
        for each in sent:
            source = self._sources[each.topic]
            offset = self._offsets[each.topic] = self._offsets.get(each.topic, -1) + 1
            try:
                record = self._read[each.topic].record(each, millis_of(self.now))
            except Undecodable as poison:
                self._bury(each, offset, str(poison))
            else:
                batch.setdefault(source, []).append(record)
        again: list[_Sent] = []
        for sink, records in self._engine.batch(batch).items():
            for record in records:
                again += self._write(sink, record)
        return again

    def _write(self, sink: Sink, record: Record) -> list[_Sent]:
        key = record.key
        if record.window is not None:
            key = {"key": record.key, "start": moment(record.window[0]), "end": moment(record.window[1])}
        self._written[sink.topic].append(Result(key, record.value))
        if sink.topic not in self._sources:
            return []
        encoded = encoder(sink.key)(key), encoder(sink.value)(record.value)
        return [_Sent(sink.topic, *encoded, millis_of(self.now), ())]

    def _bury(self, sent: _Sent, offset: int, reason: str) -> None:
        letters = self._topology.dead_letters
        if not letters:
            raise PoisonRecord(
                f"record {offset} of {sent.topic} does not match its schema: {reason}. "
                "It would stop the query; app.dead_letters(topic) sends such records to a topic"
            )
        facts = {
            "reason": reason,
            "topic": sent.topic,
            "partition": "0",
            "offset": str(offset),
            "timestamp": str(sent.time),
        }
        headers = tuple((f"moldau.{name}", text.encode()) for name, text in facts.items())
        self._written[letters].append(Result(sent.key, sent.value, (*sent.headers, *headers)))


class _SourceReader:
    """Bytes of a topic as records."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._key, self._value = decoder(source.key), decoder(source.value)
        self._time = None if source.time is None else compiled(source.time)

    def record(self, sent: _Sent, now: int) -> Record:
        key, value = self._key(sent.key), self._value(sent.value)
        if self._source.processing_time:
            return Record(key, value, now)
        record = Record(key, value, sent.time)
        if self._time is None or (value is None and self._source.shape.kind is not Kind.STREAM):
            return record
        time = self._time(row_of(record))
        if time is None:
            raise Undecodable("it has no time")
        return record._replace(time=millis_of(time))


def _time(given: datetime | str) -> datetime:
    read: datetime = read_timestamp(given)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _bytes(given: Any, form: Format) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    plain = to_dictionary(given)
    return encoder(form)(plain if form.name == "json" else conform(form.type, "what was sent")(plain))
