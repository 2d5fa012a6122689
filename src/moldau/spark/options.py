"""Options of `format("moldau")`, parsed into frozen values: those of Spark's Kafka source and sink, and our own.

All problems are reported at once, before the query starts. Needs no broker and does not import Spark.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moldau.base.settings import Setting, SettingError, SettingsRefused, Table, Value, shortened
from moldau.spark.connection import Connection, read_connection
from moldau.spark.kafka_settings import PREFIX, KafkaSettings, nearest, nearest_setting, read_kafka_settings
from moldau.spark.offsets import (
    EARLIEST,
    LATEST,
    READERS,
    Assign,
    ConsumerStrategy,
    GlobalOffset,
    OffsetRangeLimit,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
    backwards,
    read_assigned,
    read_pattern,
    read_topics,
    uncovered,
)
from moldau.spark.option_tables import ENDS, READ, SPARK_OPTIONS, STREAM_ONLY, WRITE, time_ms
from moldau.spark.value_formats import (
    CA,
    FORMATS,
    SCHEMA_ID,
    SUBJECT,
    URL,
    USER_INFO,
    Encoding,
    Registry,
    ValueEncoder,
    decoding_problems,
    encoding_problems,
    value_encoder,
)

HEADERS_NEED = "needs valueSchema with decode: rows of .schema(...) have fields of values only"
STRATEGIES = {"subscribe": read_topics, "subscribePattern": read_pattern, "assign": read_assigned}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """Fetch settings of a task."""

    read_committed: bool
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int
    max_wait_ms: int
    check_crcs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options for reading. `end` is None for a stream; `without_effect` has ignored settings, for a warning.

    `offset_patience_ms`: how long a stream waits for a broker that has answered before.
    """

    topics: ConsumerStrategy
    start: OffsetRangeLimit
    end: OffsetRangeLimit | None
    when_too_late: str
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    min_offsets_per_trigger: int | None
    max_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_ms: int
    offset_patience_ms: int
    decode: str | None
    registry: Registry | None
    value_schema: str | None
    value_subject: str | None
    dead_letters: str | None
    dead_letters_once: bool
    transaction_timeout_ms: int
    group_id: str | None
    fetching: Fetching
    connection: Connection
    without_effect: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options for writing. `acks` is -1, 0 or 1."""

    topic: str | None
    encoding: Encoding | None
    exactly_once: bool
    sink_name: str | None
    control_topic: str | None
    fail_on_control_loss: bool
    acks: int
    compression: str
    batch_bytes: int
    request_bytes: int
    delivery_timeout_ms: int
    transaction_timeout_ms: int
    idempotent: bool
    connection: Connection
    without_effect: tuple[str, ...] = ()

    def encoder(self) -> ValueEncoder | None:
        """The encoder of a task's values; None if they are bytes already."""
        return None if self.encoding is None else value_encoder(self.encoding)


class Given:
    """Given options, parsed, by their proper names; collects all problems."""

    def __init__(self, options: Mapping[str, str], table: Table, other: Table) -> None:
        self.problems: list[SettingError] = []
        self.values: dict[str, Value] = {}
        self._table = table
        by_lower = {setting.name.lower(): setting for setting in table}
        kafka: dict[str, str] = {}
        for name, text in options.items():
            lower = name.lower()
            if lower.startswith(PREFIX):
                kafka[lower] = str(text)
            elif lower in by_lower:
                self._take(by_lower[lower], str(text))
            elif lower not in SPARK_OPTIONS:
                self.problems.append(_refused_name(name, table, other))
        self.kafka, wrong = read_kafka_settings(kafka)
        self.problems += wrong
        self.connection = read_connection(self.kafka, self.problems)

    def _take(self, setting: Setting, text: str) -> None:
        value = setting.parse(text)
        if isinstance(value, SettingError):
            self.problems.append(value)
        else:
            self.values[setting.name] = value

    def get(self, name: str) -> Value:
        return self.values.get(name, self._table[name].default)

    def text(self, name: str) -> str | None:
        value = self.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> int | None:
        value = self.get(name)
        return value if isinstance(value, int) else None

    def refuse(self, name: str, sentence: str) -> None:
        self.problems.append(SettingError(name, f"{name} {sentence}"))

    def check(self) -> None:
        """Raise SettingsRefused with all problems, if there are any."""
        if self.problems:
            raise SettingsRefused(self.problems)


def _refused_name(name: str, table: Table, other: Table) -> SettingError:
    if name.lower() == "path":
        return SettingError(name, "a path has no meaning here: name topics with " + " or ".join(_aims(table)))
    names = {setting.name.lower(): setting.name for setting in other}
    if name.lower() in names:
        return SettingError(name, f"{names[name.lower()]} is an option for {other.what}, not for {table.what}")
    known = [setting.name for setting in table]
    near = nearest(name, known) or nearest_setting(name)
    hint = f"; did you mean {near}?" if near else f"; there are: {', '.join(known)}, and kafka.*"
    return SettingError(name, f"{shortened(name)} is not an option for {table.what}{hint}")


def _aims(table: Table) -> Iterable[str]:
    return STRATEGIES if table is READ else ("topic",)


def read_options(options: Mapping[str, str], *, stream: bool) -> ReadOptions:
    """Options of `spark.read` or `spark.readStream`; SettingsRefused if anything is wrong with them."""
    given = Given(options, READ, WRITE)
    topics = _topics(given)
    start = _limit(given, "starting", GlobalOffset(LATEST if stream else EARLIEST))
    end = None if stream else _limit(given, "ending", GlobalOffset(LATEST))
    _check_limits(given, topics, start, end)
    _check_rates(given)
    _check_decoding(given, topics)
    _check_delivery(given, stream=stream)
    idle = [name for name in STREAM_ONLY if name in given.values and not stream]
    given.check()
    assert topics is not None
    assert given.connection is not None
    return ReadOptions(
        topics=topics,
        start=start,
        end=end,
        when_too_late=str(given.get("startingOffsetsByTimestampStrategy")).lower(),
        fail_on_data_loss=given.get("failOnDataLoss") is True,
        include_headers=given.get("includeHeaders") is True,
        min_partitions=given.number("minPartitions"),
        max_records_per_partition=given.number("maxRecordsPerPartition"),
        min_offsets_per_trigger=given.number("minOffsetsPerTrigger") if stream else None,
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger") if stream else None,
        max_trigger_delay_ms=time_ms(given.text("maxTriggerDelay") or "") or 0,
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs") or 0,
        offset_retries=given.number("fetchOffset.numRetries") or 0,
        offset_retry_ms=given.number("fetchOffset.retryIntervalMs") or 0,
        offset_patience_ms=_patience_ms(given) if stream else 0,
        decode=(given.text("decode") or "").lower() or None,
        registry=_registry(given),
        value_schema=given.text("valueSchema"),
        value_subject=_value_subject(given, topics),
        dead_letters=given.text("deadLetters"),
        dead_letters_once=_is_exactly_once(given),
        transaction_timeout_ms=given.kafka.number("transaction.timeout.ms"),
        group_id=given.kafka.text("group.id") or None,
        fetching=_fetching(given.kafka),
        connection=given.connection,
        without_effect=(*idle, *given.kafka.without_effect),
    )


def registered_subject(options: Mapping[str, str]) -> tuple[str, Registry, str]:
    """Format, registry and subject of the columns of a query without a schema; SettingsRefused if it needs one."""
    given = Given(options, READ, WRITE)
    topics = _topics(given)
    _check_decoding(given, topics)
    subject = None if topics is None else _value_subject(given, topics)
    if subject is None:
        given.refuse(SUBJECT, "or valueSchema must be set to read several topics: their schemas may differ")
    given.check()
    form, registry = given.text("decode"), _registry(given)
    assert form is not None, "asked for a query that decodes"
    assert registry is not None, "checked"
    assert subject is not None, "checked"
    return form.lower(), registry, subject


def _fetching(kafka: KafkaSettings) -> Fetching:
    return Fetching(
        read_committed=kafka.text("isolation.level").lower() == "read_committed",
        min_bytes=kafka.number("fetch.min.bytes"),
        max_bytes=kafka.number("fetch.max.bytes"),
        max_partition_bytes=kafka.number("max.partition.fetch.bytes"),
        max_wait_ms=kafka.number("fetch.max.wait.ms"),
        check_crcs=kafka.flag("check.crcs"),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Options of `df.write`, `df.writeStream` or a sink for foreachBatch; SettingsRefused if anything is wrong."""
    given = Given(options, WRITE, READ)
    exactly_once = _is_exactly_once(given)
    acks = given.kafka.text("acks").lower()
    if exactly_once and acks not in ("all", "-1"):
        given.refuse("kafka.acks", f"must be all with delivery=exactly-once, got {acks}")
    if exactly_once and not given.kafka.flag("enable.idempotence"):
        given.refuse("kafka.enable.idempotence", "must be true with delivery=exactly-once")
    if exactly_once and not given.text("topic") and not given.text("controlTopic"):
        given.refuse("controlTopic", "must name a topic for control offsets when rows name the topics they go to")
    form = (given.text("encode") or "").lower() or None
    for name, sentence in encoding_problems(form, given.values, exactly_once=exactly_once).items():
        given.refuse(name, sentence)
    idempotent = given.kafka.flag("enable.idempotence")
    if idempotent and given.kafka.given("enable.idempotence") and acks not in ("all", "-1"):
        given.refuse("kafka.enable.idempotence", f"needs kafka.acks=all, got {acks}")
    given.check()
    assert given.connection is not None
    return WriteOptions(
        topic=given.text("topic"),
        encoding=None if form is None else _encoding(given, form),
        exactly_once=exactly_once,
        sink_name=given.text("sinkName"),
        control_topic=given.text("controlTopic") or given.text("topic"),
        fail_on_control_loss=given.get("failOnControlLoss") is True,
        acks=-1 if acks == "all" else int(acks),
        compression=given.kafka.text("compression.type").lower(),
        batch_bytes=given.kafka.number("batch.size"),
        request_bytes=given.kafka.number("max.request.size"),
        delivery_timeout_ms=given.kafka.number("delivery.timeout.ms"),
        transaction_timeout_ms=given.kafka.number("transaction.timeout.ms"),
        idempotent=idempotent and acks in ("all", "-1"),  # as Java's producer: fewer acks turn the default off
        connection=given.connection,
        without_effect=given.kafka.without_effect,
    )


def _patience_ms(given: Given) -> int:
    return given.kafka.number("default.api.timeout.ms") * (1 + (given.number("fetchOffset.numRetries") or 0))


def _registry(given: Given) -> Registry | None:
    url = given.text(URL)
    return None if url is None else Registry(url, given.text(USER_INFO) or "", given.text(CA) or "")


def _encoding(given: Given, form: str) -> Encoding:
    subject = given.text(SUBJECT) or subject_of(given.text("topic") or "")
    registry = _registry(given)
    assert registry is not None, "checked before"
    return Encoding(form, registry, subject, given.number(SCHEMA_ID))


def _value_subject(given: Given, topics: ConsumerStrategy) -> str | None:
    """None if several topics are read."""
    names = set()
    match topics:
        case Subscribe():
            names = set(topics.topics)
        case Assign():
            names = {tp.topic for tp in topics.partitions}
    return given.text(SUBJECT) or (subject_of(names.pop()) if len(names) == 1 else None)


def subject_of(topic: str) -> str:
    """The subject of a topic's values in a registry, by Confluent's default."""
    return f"{topic}-value"


def _topics(given: Given) -> ConsumerStrategy | None:
    named = [name for name in STRATEGIES if name in given.values]
    if len(named) != 1:
        what = f"only one of them can be, got {' and '.join(named)}" if named else "none of them is"
        given.problems.append(
            SettingError("subscribe", f"one of {', '.join(STRATEGIES)} must be set to say what to read; {what}")
        )
        return None
    found = STRATEGIES[named[0]](named[0], given.text(named[0]) or "")
    if isinstance(found, SettingError):
        given.problems.append(found)
        return None
    return found


def _limit(given: Given, which: str, default: OffsetRangeLimit) -> OffsetRangeLimit:
    """Of several set limits the first one applies, as in Spark; all must be valid."""
    found = []
    for ending, reader in READERS.items():
        name = f"{which}{ending}"
        if name in given.values:
            limit = reader(name, given.text(name) or "")
            if isinstance(limit, SettingError):
                given.problems.append(limit)
            else:
                found.append(limit)
    return found[0] if found else default


def _check_limits(
    given: Given, topics: ConsumerStrategy | None, start: OffsetRangeLimit, end: OffsetRangeLimit | None
) -> None:
    set_ends = [name for name in ENDS if name in given.values]
    if end is None:
        for name in set_ends:
            given.refuse(name, "is for batch queries: a stream has no end. Stop it with trigger(availableNow=True)")
        return _check_cover(given, topics, start, None)
    if LATEST in _special(start):
        given.refuse("startingOffsets", "cannot be latest (-1) in a batch query: there would be nothing to read")
    if EARLIEST in _special(end):
        given.refuse("endingOffsets", "cannot be earliest (-2) in a batch query: there would be nothing to read")
    wrong = backwards(start, end)
    if wrong:
        given.refuse(set_ends[0] if set_ends else "endingOffsets", f"does not match the start of the query: {wrong}")
    return _check_cover(given, topics, start, end)


def _special(limit: OffsetRangeLimit) -> set[int]:
    """The special offsets, EARLIEST and LATEST, in a limit."""
    if isinstance(limit, GlobalOffset):
        return {limit.offset}
    return (
        {offset for offset in limit.by_partition.values() if offset < 0}
        if isinstance(limit, SpecificOffsets)
        else set()
    )


def _check_cover(
    given: Given, topics: ConsumerStrategy | None, start: OffsetRangeLimit, end: OffsetRangeLimit | None
) -> None:
    """Offsets by partition must match assigned partitions or subscribed topics; a pattern is checked later."""
    for which, limit in (("starting", start), ("ending", end)):
        name = next((f"{which}{each}" for each in READERS if f"{which}{each}" in given.values), "")
        if not isinstance(limit, SpecificOffsets | SpecificTimestamps):
            continue
        if isinstance(topics, Assign):
            problem = uncovered(name, limit, topics.partitions)
            if problem:
                given.problems.append(problem)
        elif isinstance(topics, Subscribe):
            named = {tp.topic for tp in limit.by_partition}
            for topic in sorted(named ^ set(topics.topics)):
                sentence = "which subscribe does not" if topic in named else "which subscribe names"
                verb = "names" if topic in named else "lacks"
                given.refuse(name, f"{verb} the topic {topic}, {sentence}")


def _check_rates(given: Given) -> None:
    least, most = given.number("minOffsetsPerTrigger"), given.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        given.refuse("minOffsetsPerTrigger", f"({least}) must not be more than maxOffsetsPerTrigger ({most})")


def _check_decoding(given: Given, topics: ConsumerStrategy | None) -> None:
    form = (given.text("decode") or "").lower() or None
    for name, sentence in decoding_problems(form, given.values).items():
        given.refuse(name, sentence)
    flat = form is not None and not FORMATS[form].registry and "valueSchema" not in given.values
    if flat and given.get("includeHeaders") is True:
        given.refuse("includeHeaders", HEADERS_NEED)
    if form is None and "valueSchema" in given.values:
        given.refuse("valueSchema", "needs decode: without it values are bytes")
    dead = given.text("deadLetters")
    if dead is None:
        return
    if form is None:
        given.refuse("deadLetters", "needs decode: only decoded records can be rejected")
    if topics is not None and _reads(topics, dead):
        given.refuse("deadLetters", f"must not be a topic that the query reads, got {dead}")


def _check_delivery(given: Given, *, stream: bool) -> None:
    """Of a source only dead letters are written."""
    if not _is_exactly_once(given):
        return
    if "deadLetters" not in given.values:
        given.refuse("delivery", "has no effect without deadLetters when reading; set it where the query writes, too")
    if not stream:
        given.refuse("delivery", "cannot be exactly-once in a batch query, which cannot be told from a repeated one")


def _is_exactly_once(given: Given) -> bool:
    return str(given.get("delivery")).lower() == "exactly-once"


def _reads(topics: ConsumerStrategy, topic: str) -> bool:
    match topics:
        case Subscribe():
            return topic in topics.topics
        case SubscribePattern():
            return topics.matches(topic)
        case Assign():
            return any(tp.topic == topic for tp in topics.partitions)
