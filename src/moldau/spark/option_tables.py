"""Tables of the options for reading and writing: those of Spark's Kafka source and sink, and our own.

They define single values; options.py checks combinations.
"""

import re

from moldau.base.settings import Kind, Setting, Table, Value
from moldau.spark.offsets import MAX_TOPIC_NAME, is_topic_name
from moldau.spark.value_formats import CA, FORMATS, SCHEMA_ID, SUBJECT, URL, USER_INFO, is_registry_url

TIME_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}
TIME = re.compile(r"(\d{1,12})([a-z]*)")


def _is_time(value: Value) -> str | None:
    return None if time_ms(str(value)) is not None else "a time such as 500ms, 30s, 15m or 2h"


def _is_topic(value: Value) -> str | None:
    allowed = f"the name of one topic: up to {MAX_TOPIC_NAME} letters, digits, dots, underscores and hyphens"
    return None if is_topic_name(str(value)) else allowed


def _is_name(value: Value) -> str | None:
    return None if re.fullmatch(r"[\w.-]{1,100}", str(value), re.ASCII) else "up to 100 letters, digits, . _ and -"


def time_ms(text: str) -> int | None:
    """Milliseconds of a duration in Spark's syntax; None if it is invalid."""
    match = TIME.fullmatch(text.strip().lower())
    return int(match[1]) * TIME_UNITS_MS[match[2]] if match and match[2] in TIME_UNITS_MS else None


def _delivery(doc: str) -> Setting:
    choices = ("at-least-once", "exactly-once")
    return Setting("delivery", Kind.STRING, choices[0], choices=choices, any_case=True, doc=doc)


REGISTRY = (
    Setting(URL, Kind.STRING, check=is_registry_url, doc="Address of the schema registry, for formats that need one."),
    Setting(USER_INFO, Kind.PASSWORD, doc="User and password for the registry, with a colon between them."),
    Setting(CA, Kind.STRING, doc="PEM file of the authorities that may sign the registry's certificate."),
    Setting(
        SUBJECT, Kind.STRING, doc="Subject of the schema of the values; without it that of the topic, TOPIC-value."
    ),
)
READ_OPTIONS = (
    Setting("subscribe", Kind.STRING, doc="Topics to read, separated by commas."),
    Setting(
        "subscribePattern",
        Kind.STRING,
        doc="Regular expression: reads every topic with a match anywhere in its name, unless ^ and $ anchor it.",
    ),
    Setting("assign", Kind.STRING, doc='Partitions to read, as JSON: `{"orders":[0,1]}`.'),
    Setting(
        "startingTimestamp",
        Kind.STRING,
        doc="Starts at the first record of each partition at or after this: ISO 8601, `10m ago`, or milliseconds.",
    ),
    Setting("startingOffsetsByTimestamp", Kind.STRING, doc='The same for each partition: `{"orders":{"0":1700}}`.'),
    Setting("startingOffsets", Kind.STRING, doc="Starts at `earliest`, `latest` (streams) or JSON (-2, -1)."),
    Setting("endingTimestamp", Kind.STRING, doc="Ends before the first record of each partition at or after this."),
    Setting("endingOffsetsByTimestamp", Kind.STRING, doc="The same for each partition, as JSON."),
    Setting("endingOffsets", Kind.STRING, doc="Ends at `latest` or before the offsets of this JSON."),
    Setting(
        "startingOffsetsByTimestampStrategy",
        Kind.STRING,
        "error",
        choices=("error", "latest"),
        any_case=True,
        doc="If no record is at or after the starting timestamp: fail (error), or start at the end (latest).",
    ),
    Setting(
        "failOnDataLoss",
        Kind.BOOL,
        True,
        doc="Whether to fail the query when records were deleted before it read them.",
    ),
    Setting("includeHeaders", Kind.BOOL, False, doc="Whether to add the column headers."),
    Setting("minPartitions", Kind.INT, least=1, doc="Split partitions into about this many tasks."),
    Setting(
        "maxRecordsPerPartition", Kind.LONG, least=1, doc="Split partitions into tasks of at most this many records."
    ),
    Setting("minOffsetsPerTrigger", Kind.LONG, least=1, doc="Minimum number of offsets per batch."),
    Setting("maxOffsetsPerTrigger", Kind.LONG, least=1, doc="Maximum number of offsets per batch."),
    Setting("maxTriggerDelay", Kind.STRING, "15m", check=_is_time, doc="Maximum wait for minOffsetsPerTrigger."),
    Setting(
        "groupIdPrefix", Kind.STRING, "spark-kafka-source", doc="Accepted without effect: no group id is generated."
    ),
    Setting("kafkaConsumer.pollTimeoutMs", Kind.LONG, 120_000, least=1, doc="Maximum wait of a task for records."),
    Setting("fetchOffset.numRetries", Kind.INT, 3, least=0, doc="Retries of offset requests."),
    Setting("fetchOffset.retryIntervalMs", Kind.LONG, 10, least=0, doc="Backoff before such a retry."),
    Setting(
        "partition.metadata.cache.ttl.ms",
        Kind.LONG,
        -1,
        least=1,
        also=(-1,),
        doc="Accepted without effect: partitions are always looked up.",
    ),
    Setting("decode", Kind.STRING, choices=tuple(FORMATS), any_case=True, doc="Decode values of this format."),
    Setting(
        "valueSchema",
        Kind.STRING,
        doc="Schema of decoded values: they are the struct `value` beside the other columns of the record.",
    ),
    *REGISTRY,
    Setting("deadLetters", Kind.STRING, check=_is_topic, doc="Topic for records that do not match the schema."),
    _delivery("Whether a task that runs again may write its dead letters again."),
)
WRITE_OPTIONS = (
    Setting("topic", Kind.STRING, check=_is_topic, doc="Topic of all rows; without it the column `topic` is used."),
    Setting(
        "includeHeaders",
        Kind.BOOL,
        False,
        doc="Accepted without effect: a column `headers` is always written.",
    ),
    _delivery("Whether a task that runs again may write its rows again."),
    Setting("controlTopic", Kind.STRING, check=_is_topic, doc="Topic of the control offsets, if not `topic`."),
    Setting(
        "failOnControlLoss",
        Kind.BOOL,
        True,
        doc="Whether missing control offsets fail an exactly-once query.",
    ),
    Setting("encode", Kind.STRING, choices=tuple(FORMATS), any_case=True, doc="Encode values in this format."),
    *REGISTRY,
    Setting(
        SCHEMA_ID, Kind.INT, least=1, doc="Id of the schema to encode with; without it the latest one of the subject."
    ),
    Setting("sinkName", Kind.STRING, check=_is_name, doc="Identifies a sink within its query; must not change."),
)
READ, WRITE = Table("reading", READ_OPTIONS), Table("writing", WRITE_OPTIONS)
ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
STREAM_ONLY = ("minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxTriggerDelay")
SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname"})  # Spark's own, set beside ours
