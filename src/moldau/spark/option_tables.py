"""The tables of options for reading and writing: names as Spark's Kafka source and sink have them, and our own.

What single values may be; which of them go together is for options.py.
"""

import re

from moldau.base.settings import Kind, Setting, Table, Value
from moldau.spark.offsets import MAX_TOPIC_NAME, is_topic_name

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
    """A time as Spark's settings have it, in milliseconds; None if it is none."""
    match = TIME.fullmatch(text.strip().lower())
    return int(match[1]) * TIME_UNITS_MS[match[2]] if match and match[2] in TIME_UNITS_MS else None


READ_OPTIONS = (
    Setting("subscribe", Kind.STRING, doc="Topics to read, with commas between them."),
    Setting(
        "subscribePattern",
        Kind.STRING,
        doc="Reads every topic in whose name this expression is found; ^ and $ tie it to the ends.",
    ),
    Setting("assign", Kind.STRING, doc='Partitions to read, as JSON: `{"orders":[0,1]}`.'),
    Setting("startingTimestamp", Kind.STRING, doc="Starts at the first record of each partition at or after this."),
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
        doc="What to do when no record is as late as the start: fail, or start at the end.",
    ),
    Setting(
        "failOnDataLoss", Kind.BOOL, True, doc="Whether records that are gone before they were read fail the query."
    ),
    Setting("includeHeaders", Kind.BOOL, False, doc="Whether there is a column of headers."),
    Setting("minPartitions", Kind.INT, least=1, doc="Splits partitions until there are about this many tasks."),
    Setting("maxRecordsPerPartition", Kind.LONG, least=1, doc="Splits partitions into tasks of at most this many."),
    Setting("minOffsetsPerTrigger", Kind.LONG, least=1, doc="A batch waits for this many new offsets."),
    Setting("maxOffsetsPerTrigger", Kind.LONG, least=1, doc="A batch takes this many offsets at most."),
    Setting("maxTriggerDelay", Kind.STRING, "15m", check=_is_time, doc="The longest wait for minOffsetsPerTrigger."),
    Setting("groupIdPrefix", Kind.STRING, "spark-kafka-source", doc="Taken, but no group is made up here."),
    Setting("kafkaConsumer.pollTimeoutMs", Kind.LONG, 120_000, least=1, doc="How long a task waits for records."),
    Setting("fetchOffset.numRetries", Kind.INT, 3, least=0, doc="How often asking for offsets is tried again."),
    Setting("fetchOffset.retryIntervalMs", Kind.LONG, 10, least=0, doc="The pause before it is."),
    Setting(
        "partition.metadata.cache.ttl.ms",
        Kind.LONG,
        -1,
        least=1,
        also=(-1,),
        doc="Taken, but partitions are always looked up.",
    ),
    Setting("decode", Kind.STRING, choices=("json",), any_case=True, doc="Values become the columns of the schema."),
    Setting("deadLetters", Kind.STRING, check=_is_topic, doc="The topic for records that do not fit the schema."),
)
WRITE_OPTIONS = (
    Setting("topic", Kind.STRING, check=_is_topic, doc="Where rows go; without it a column `topic` says so."),
    Setting(
        "includeHeaders",
        Kind.BOOL,
        False,
        doc="Taken, but a column of headers is always written.",
    ),
    Setting(
        "delivery",
        Kind.STRING,
        "at-least-once",
        choices=("at-least-once", "exactly-once"),
        any_case=True,
        doc="Whether a task that runs again may write its rows again.",
    ),
    Setting(
        "controlTopic", Kind.STRING, check=_is_topic, doc="Where control offsets are committed, if not on `topic`."
    ),
    Setting(
        "failOnControlLoss",
        Kind.BOOL,
        True,
        doc="Whether control offsets that should be there and are not fail an exactly-once query.",
    ),
    Setting("sinkName", Kind.STRING, check=_is_name, doc="Tells the sinks of one query apart; it must never change."),
)
READ, WRITE = Table("reading", READ_OPTIONS), Table("writing", WRITE_OPTIONS)
ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
STREAM_ONLY = ("minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxTriggerDelay")
SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname"})  # set beside ours, meant for Spark itself
