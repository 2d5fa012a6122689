"""The topic settings: their table, and `LogConfig`, the typed values for one log.

A topic's own value comes first, then the broker's (each row names the broker settings that it falls back to, in
order), then the default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from moldau.base.errors import Refusal, WireError
from moldau.base.settings import Kind, Setting, SettingError, SettingsRefused, Synonym, Table, Value

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
MIB: Final = 2**20
GIB: Final = 2**30
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
SUBJECT_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
TOPIC_NAME_STRATEGY: Final = "io.confluent.kafka.serializers.subject.TopicNameStrategy"
SCHEMA_MODES: Final = ("reject", "dead-letter", "warn")
LATEST: Final = "latest"
LONGEST_NUMBER: Final = len(str(MAX_INT))
LONGEST_SCHEMA: Final = 32_767  # bytes of a schema in a topic's settings: what every client can send


def _of_broker(*names: str) -> tuple[Synonym, ...]:
    units = {"hours": HOUR_MS, "minutes": MINUTE_MS}
    return tuple(Synonym(name, units.get(name.rpartition(".")[2], 1)) for name in names)


def _throttled_replicas(value: Value) -> str | None:
    """KIP-73: a star, or pairs of partition and broker."""
    words = value if isinstance(value, tuple) else ()
    pairs = [word.split(":") for word in words]
    if words in ((), ("*",)) or all(len(pair) == 2 and all(part.isdigit() for part in pair) for pair in pairs):
        return None
    return "* or a list of partition:broker pairs"


def _some_bytes(value: Value) -> str | None:
    """Kafka accepts any number here; one below 1 would roll a segment for every batch."""
    return "at least 1" if isinstance(value, int) and value < 1 else None


def _tiered(value: Value) -> str | None:
    return "false, as tiered storage is not supported yet" if value else None


def _strategy(value: Value) -> str | None:
    """By class name, with or without its package: what a Java client's setting says can be copied."""
    if isinstance(value, str) and value.rpartition(".")[2] in SUBJECT_STRATEGIES:
        return None
    return f"one of {', '.join(SUBJECT_STRATEGIES)}, with or without a Java package"


def _schema(value: Value) -> str | None:
    """Its form only: `broker/schemas/declared.py` reads a JSON Schema itself."""
    if not isinstance(value, str) or not value:
        return None
    if len(value.encode()) > LONGEST_SCHEMA:
        return f"at most {LONGEST_SCHEMA} bytes; register a longer schema, and name its subject here"
    if value.startswith("{"):
        return None
    subject, at, version = value.rpartition("@")
    number = int(version) if version.isascii() and version.isdigit() and len(version) <= LONGEST_NUMBER else 0
    if at and version != LATEST and not 1 <= number <= MAX_INT:
        return "a subject, subject@version with a version from 1, subject@latest, or a JSON Schema that begins with {"
    if any(character < " " for character in value) or not (subject if at else value).strip():
        return "a subject, subject@version, subject@latest, or a JSON Schema that begins with {"
    return None


BOOL: Final = Kind.BOOL
STRING: Final = Kind.STRING
INT: Final = Kind.INT
LONG: Final = Kind.LONG
DOUBLE: Final = Kind.DOUBLE
LIST: Final = Kind.LIST

# fmt: off
ROWS: Final = (
    Setting("cleanup.policy", LIST, ("delete",), choices=("compact", "delete"),
            synonyms=_of_broker("log.cleanup.policy"),
            doc="How old records go: `delete` by age and size, `compact` by key, both, or (empty) not at all."),
    Setting("compression.gzip.level", INT, -1, least=1, most=9, also=(-1,),
            synonyms=_of_broker("compression.gzip.level"),
            doc="Effort of gzip where the broker compresses; -1 leaves it to the library."),
    Setting("compression.lz4.level", INT, 9, least=1, most=17, synonyms=_of_broker("compression.lz4.level"),
            doc="Effort of lz4 where the broker compresses."),
    Setting("compression.type", STRING, "producer",
            choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
            synonyms=_of_broker("compression.type"),
            doc="Codec that batches are stored in; `producer` keeps them as they came."),
    Setting("compression.zstd.level", INT, 3, least=-131072, most=22, synonyms=_of_broker("compression.zstd.level"),
            doc="Effort of zstd where the broker compresses."),
    Setting("confluent.key.schema.validation", BOOL, False,
            doc="Refuse records whose key does not begin with the id of a schema of its subject."),
    Setting("confluent.key.subject.name.strategy", STRING, TOPIC_NAME_STRATEGY, check=_strategy,
            doc="The subject of keys, for `confluent.key.schema.validation`: by topic name, record name, or both."),
    Setting("confluent.value.schema.validation", BOOL, False,
            doc="Refuse records whose value does not begin with the id of a schema of its subject."),
    Setting("confluent.value.subject.name.strategy", STRING, TOPIC_NAME_STRATEGY, check=_strategy,
            doc="The subject of values, for `confluent.value.schema.validation`: by topic name, record name, or both."),
    Setting("delete.retention.ms", LONG, DAY_MS, least=0, synonyms=_of_broker("log.cleaner.delete.retention.ms"),
            doc="How long a compacted topic keeps the tombstones of deleted keys, so that readers still see them."),
    Setting("file.delete.delay.ms", LONG, MINUTE_MS, least=0, synonyms=_of_broker("log.segment.delete.delay.ms"),
            doc="How long a segment that was taken out of the log stays on disk before its files are removed."),
    Setting("flush.messages", LONG, MAX_LONG, least=1, synonyms=_of_broker("log.flush.interval.messages"),
            doc="Force records to disk after this many; left alone, the operating system decides."),
    Setting("flush.ms", LONG, MAX_LONG, least=0,
            synonyms=_of_broker("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
            doc="Force records to disk after this time; left alone, the operating system decides."),
    Setting("follower.replication.throttled.replicas", LIST, (), check=_throttled_replicas,
            doc="Replicas throttled on the follower's side: partition:broker pairs, or `*` for all."),
    Setting("index.interval.bytes", INT, 4096, least=0, synonyms=_of_broker("log.index.interval.bytes"),
            doc="Bytes of log between two entries of the offset index."),
    Setting("internal.segment.bytes", INT, None, check=_some_bytes, hidden=True,
            doc="Stands in for segment.bytes in tests that need segments below its least value."),
    Setting("leader.replication.throttled.replicas", LIST, (), check=_throttled_replicas,
            doc="Replicas throttled on the leader's side: partition:broker pairs, or `*` for all."),
    Setting("local.retention.bytes", LONG, -2, least=-2, synonyms=_of_broker("log.local.retention.bytes"),
            doc="With tiered storage, the bytes per partition kept on local disk; -2 follows retention.bytes."),
    Setting("local.retention.ms", LONG, -2, least=-2, synonyms=_of_broker("log.local.retention.ms"),
            doc="With tiered storage, how long segments stay on local disk; -2 follows retention.ms."),
    Setting("max.compaction.lag.ms", LONG, MAX_LONG, least=1,
            synonyms=_of_broker("log.cleaner.max.compaction.lag.ms"),
            doc="The longest that a record of a compacted topic may wait for compaction."),
    Setting("max.message.bytes", INT, MIB + 12, least=0, synonyms=_of_broker("message.max.bytes"),
            doc="The largest batch that is accepted, as it arrives (compressed)."),
    Setting("message.timestamp.after.max.ms", LONG, HOUR_MS, least=0,
            synonyms=_of_broker("log.message.timestamp.after.max.ms"),
            doc="How far a record's timestamp may lie ahead of the broker's clock."),
    Setting("message.timestamp.before.max.ms", LONG, MAX_LONG, least=0,
            synonyms=_of_broker("log.message.timestamp.before.max.ms"),
            doc="How far a record's timestamp may lie behind the broker's clock."),
    Setting("message.timestamp.type", STRING, "CreateTime", choices=("CreateTime", "LogAppendTime"),
            synonyms=_of_broker("log.message.timestamp.type"),
            doc="The timestamp of a record: the producer's, or the broker's when it appends."),
    Setting("min.cleanable.dirty.ratio", DOUBLE, 0.5, least=0, most=1,
            synonyms=_of_broker("log.cleaner.min.cleanable.ratio"),
            doc="Share of a compacted log that must be uncompacted before compaction starts."),
    Setting("min.compaction.lag.ms", LONG, 0, least=0, synonyms=_of_broker("log.cleaner.min.compaction.lag.ms"),
            doc="The shortest that a record of a compacted topic stays untouched by compaction."),
    Setting("min.insync.replicas", INT, 1, least=1, synonyms=_of_broker("min.insync.replicas"),
            doc="With acks=all, how many replicas must have a batch before it counts as written."),
    Setting("moldau.key.schema", STRING, "", check=_schema,
            doc="What keys must conform to: `subject`, `subject@version`, `subject@latest`, or a JSON Schema."),
    Setting("moldau.key.schema.mode", STRING, "reject", choices=SCHEMA_MODES,
            doc="Records whose key does not conform: refuse the batch, move them to `<topic>.dead`, or only warn."),
    Setting("moldau.value.schema", STRING, "", check=_schema,
            doc="What values must conform to: `subject`, `subject@version`, `subject@latest`, or a JSON Schema."),
    Setting("moldau.value.schema.mode", STRING, "reject", choices=SCHEMA_MODES,
            doc="Records whose value does not conform: refuse the batch, move them to `<topic>.dead`, or only warn."),
    Setting("preallocate", BOOL, False, synonyms=_of_broker("log.preallocate"),
            doc="Reserve a segment's whole size on disk when it is created."),
    Setting("remote.log.copy.disable", BOOL, False, doc="With tiered storage, stop copying segments away."),
    Setting("remote.log.delete.on.disable", BOOL, False,
            doc="With tiered storage, delete the remote copies when it is switched off for the topic."),
    Setting("remote.storage.enable", BOOL, False, check=_tiered,
            doc="Keep old segments in tiered storage; only `false` for now, as tiered storage is not supported yet."),
    Setting("retention.bytes", LONG, -1, synonyms=_of_broker("log.retention.bytes"),
            doc="Bytes per partition beyond which the oldest segments are deleted; -1 is without limit."),
    Setting("retention.ms", LONG, 7 * DAY_MS, least=-1,
            synonyms=_of_broker("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
            doc="How long records are kept before their segment is deleted; -1 is for ever."),
    Setting("segment.bytes", INT, GIB, least=MIB, synonyms=_of_broker("log.segment.bytes"),
            doc="Roll to a new segment at this size."),
    Setting("segment.index.bytes", INT, 10 * MIB, least=4, synonyms=_of_broker("log.index.size.max.bytes"),
            doc="The largest that an index file may grow; a full one rolls the segment."),
    Setting("segment.jitter.ms", LONG, 0, least=0, synonyms=_of_broker("log.roll.jitter.ms", "log.roll.jitter.hours"),
            doc="Up to this much is taken off segment.ms at random, so that segments do not all roll at once."),
    Setting("segment.ms", LONG, 7 * DAY_MS, least=1, synonyms=_of_broker("log.roll.ms", "log.roll.hours"),
            doc="Roll to a new segment at this age, full or not."),
    Setting("unclean.leader.election.enable", BOOL, False, synonyms=_of_broker("unclean.leader.election.enable"),
            doc="Let a replica that is not in sync become leader when no other is left, at the price of lost records."),
)
# fmt: on

TOPIC: Final = Table("topic", ROWS)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """A log's settings, typed: each field is a row of the table, with underscores for dots."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    confluent_key_schema_validation: bool = False
    confluent_key_subject_name_strategy: str = TOPIC_NAME_STRATEGY
    confluent_value_schema_validation: bool = False
    confluent_value_subject_name_strategy: str = TOPIC_NAME_STRATEGY
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = MINUTE_MS
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = MAX_LONG
    max_message_bytes: int = MIB + 12
    message_timestamp_after_max_ms: int = HOUR_MS
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    moldau_key_schema: str = ""
    moldau_key_schema_mode: str = "reject"
    moldau_value_schema: str = ""
    moldau_value_schema_mode: str = "reject"
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = GIB  # or internal.segment.bytes, which tests set
    segment_index_bytes: int = 10 * MIB
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    unclean_leader_election_enable: bool = False

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def checks_schemas(self) -> bool:
        """Whether records must conform to a schema."""
        return bool(
            self.moldau_value_schema
            or self.moldau_key_schema
            or self.confluent_value_schema_validation
            or self.confluent_key_schema_validation
        )

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @classmethod
    def of(cls, overrides: Mapping[str, str], broker_values: Mapping[str, Value] | None = None) -> "LogConfig":
        """The values of a log with these overrides, which were validated when they were set (see `checked`).

        `broker_values` are the broker's, typed; missing ones, and None, fall back to the next. Names that the table
        does not have (a directory may come from a newer version) are ignored.
        """
        config = _resolve(overrides, broker_values or {})
        if isinstance(config, SettingError):
            raise SettingsRefused([config])
        return config


LOG_CONFIG_NAMES: Final = {field.name: field.name.replace("_", ".") for field in fields(LogConfig)}


def checked(overrides: Mapping[str, str], broker_values: Mapping[str, Value] | None = None) -> LogConfig | Refusal:
    """The values of a log with overrides from a request; INVALID_CONFIG with the reason if one is invalid."""
    unknown = next((name for name in overrides if name not in TOPIC), None)
    config = TOPIC.unknown(unknown) if unknown is not None else _resolve(overrides, broker_values or {})
    if isinstance(config, SettingError):
        return Refusal(WireError.INVALID_CONFIG, config.message)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        low, high = config.min_compaction_lag_ms, config.max_compaction_lag_ms
        return Refusal(
            WireError.INVALID_CONFIG,
            f"min.compaction.lag.ms must be at most max.compaction.lag.ms, got {low} and {high}",
        )
    return config


def default_of(setting: Setting, broker_values: Mapping[str, Value]) -> Value:
    """A topic setting without an override: the first of its broker settings that has a value, else the default."""
    for synonym in setting.synonyms:
        value = broker_values.get(synonym.name)
        if value is None:
            continue
        if setting.name == "retention.ms" and isinstance(value, int) and value < 0:
            return -1  # on the broker every negative time means no limit, in any unit
        return value * synonym.times if isinstance(value, int) and synonym.times != 1 else value
    return setting.default


def _resolve(overrides: Mapping[str, str], broker_values: Mapping[str, Value]) -> LogConfig | SettingError:
    values: dict[str, Value] = {}
    for setting in TOPIC:
        text = overrides.get(setting.name)
        value = default_of(setting, broker_values) if text is None else setting.parse(text)
        if isinstance(value, SettingError):
            return value
        values[setting.name] = value
    if values["internal.segment.bytes"] is not None:
        values["segment.bytes"] = values["internal.segment.bytes"]
    typed: dict[str, object] = {field: values[name] for field, name in LOG_CONFIG_NAMES.items()}
    policy = values["cleanup.policy"]
    typed["cleanup_policy"] = frozenset(policy if isinstance(policy, tuple) else ())
    return LogConfig(**typed)  # type: ignore[arg-type]  # the rows' kinds are the fields' types; a test compares them
