"""Topic settings: whose value counts, and what is refused."""

from dataclasses import fields

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.settings import Kind, SettingsRefused
from moldau.log.settings import LOG_CONFIG_NAMES, TOPIC, LogConfig, checked

TYPES = {Kind.BOOL: "bool", Kind.STRING: "str", Kind.INT: "int", Kind.LONG: "int", Kind.DOUBLE: "float"}


def test_every_field_is_a_row_with_its_type_and_default() -> None:
    assert set(LOG_CONFIG_NAMES.values()) | {"internal.segment.bytes"} == {setting.name for setting in TOPIC}
    assert LogConfig.of({}) == LogConfig()
    for field in fields(LogConfig):
        kind = TOPIC[LOG_CONFIG_NAMES[field.name]].kind
        expected = {bool: "bool", str: "str", int: "int", float: "float"}.get(field.type, "list")  # type: ignore[call-overload]
        assert TYPES.get(kind, "list") == expected, field.name


def test_the_topic_comes_before_the_broker_before_the_default() -> None:
    assert LogConfig.of({}).segment_bytes == 2**30
    assert LogConfig.of({}, {"log.segment.bytes": 2**21}).segment_bytes == 2**21
    assert LogConfig.of({"segment.bytes": "1048576"}, {"log.segment.bytes": 2**21}).segment_bytes == 2**20


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({"log.retention.hours": 2}, 7_200_000),
        ({"log.retention.hours": 2, "log.retention.minutes": 3}, 180_000),
        ({"log.retention.hours": 2, "log.retention.minutes": 3, "log.retention.ms": 4}, 4),
        ({"log.retention.hours": 2, "log.retention.minutes": None, "log.retention.ms": None}, 7_200_000),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.minutes": -5}, -1),
    ],
)
def test_the_finer_unit_counts(broker: dict[str, int | None], retention_ms: int) -> None:
    assert LogConfig.of({}, broker).retention_ms == retention_ms


def test_cleanup_policies() -> None:
    both = LogConfig.of({"cleanup.policy": "compact, delete"})
    assert both.cleanup_policy == {"compact", "delete"}
    assert both.compacts
    assert both.deletes
    none = LogConfig.of({"cleanup.policy": ""})
    assert not none.compacts
    assert not none.deletes


def test_tests_can_have_small_segments() -> None:
    assert LogConfig.of({"internal.segment.bytes": "200", "segment.bytes": "2097152"}).segment_bytes == 200


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"segment.bytes": "10"}, "segment.bytes must be at least 1048576, got 10"),
        ({"segment.byte": "10"}, "Unknown topic config name: segment.byte; did you mean segment.bytes?"),
        ({"cleanup.policy": "remove"}, "cleanup.policy must be a list of: compact, delete, got 'remove'"),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "min.compaction.lag.ms must be at most max.compaction.lag.ms, got 10 and 5",
        ),
        (
            {"remote.storage.enable": "true"},
            "remote.storage.enable must be false, as tiered storage is not supported yet, got 'true'",
        ),
        (
            {"leader.replication.throttled.replicas": "0:1,x"},
            "leader.replication.throttled.replicas must be * or a list of partition:broker pairs, got '0:1,x'",
        ),
        ({"message.timestamp.type": "createtime"}, None),
        ({"internal.segment.bytes": "0"}, "internal.segment.bytes must be at least 1, got 0"),
        ({"retention.ms": "-2"}, None),
        ({"compression.type": "GZIP"}, None),
        ({"message.format.version": "3.0"}, None),
    ],
)
def test_what_does_not_fit_is_an_invalid_config(overrides: dict[str, str], sentence: str | None) -> None:
    refusal = checked(overrides)
    assert isinstance(refusal, Refusal)
    assert refusal.error is WireError.INVALID_CONFIG
    assert sentence is None or refusal.message == sentence


@pytest.mark.parametrize(
    "overrides",
    [
        {"retention.bytes": "-5"},
        {"retention.ms": "0"},
        {"cleanup.policy": "delete,delete"},
        {"leader.replication.throttled.replicas": "*"},
        {"leader.replication.throttled.replicas": "0:1,1:2"},
        {"remote.log.copy.disable": "true", "local.retention.ms": "5"},
        {"segment.bytes": "+2097152"},
    ],
)
def test_what_kafka_accepts_is_accepted(overrides: dict[str, str]) -> None:
    assert isinstance(checked(overrides), LogConfig)


def test_stored_names_of_a_newer_version_are_left_aside_but_bad_values_are_not() -> None:
    assert LogConfig.of({"from.the.future": "1"}) == LogConfig()
    with pytest.raises(SettingsRefused, match="at least 1048576"):
        LogConfig.of({"segment.bytes": "1"})


@pytest.mark.parametrize(
    "schema", ["", "orders", "orders-value@3", "orders-value@latest", ":.eu:orders@1", '{"type": "object"}']
)
def test_schemas_of_topics(schema: str) -> None:
    config = LogConfig.of({"moldau.value.schema": schema})
    assert config.moldau_value_schema == schema
    assert config.checks_schemas is bool(schema)


@pytest.mark.parametrize("schema", ["orders@0", "orders@-1", "orders@", "@1", "a@b", "orders@12345678901", "a\nb"])
def test_what_names_no_schema_is_refused(schema: str) -> None:
    refusal = checked({"moldau.value.schema": schema})
    assert isinstance(refusal, Refusal)
    assert refusal.error is WireError.INVALID_CONFIG
    assert refusal.message.startswith("moldau.value.schema must be a subject, subject@version")


def test_a_long_schema_has_to_be_registered() -> None:
    refusal = checked({"moldau.key.schema": '{"a":"' + "x" * 32_768})
    assert isinstance(refusal, Refusal)
    assert refusal.message.startswith("moldau.key.schema must be at most 32767 bytes; register a longer schema")


def test_a_class_name_of_java_names_a_strategy() -> None:
    assert LogConfig.of({"confluent.value.subject.name.strategy": "RecordNameStrategy"})
    refusal = checked({"confluent.value.subject.name.strategy": "com.example.Own"})
    assert isinstance(refusal, Refusal)
    assert "must be one of TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy" in refusal.message
