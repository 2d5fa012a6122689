"""DescribeConfigs and AlterConfigs: values, sources and error codes are those that Apache Kafka 4.3.1 answers with."""

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.broker.configs import (
    ConfigChange,
    Entry,
    Layers,
    Op,
    Source,
    SynonymEntry,
    alter_broker,
    alter_group,
    alter_topic,
    describe_broker,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
    effective,
    new_topic,
    secrets_in,
)
from moldau.broker.settings import load

NOTHING = Layers({}, {}, {})
VALUES = load({})[0].values
COMPACTED = {"cleanup.policy": "compact"}
BOTH = {"cleanup.policy": "delete,compact"}
TOPIC_SOURCE, BROKER_SOURCE, CLUSTER, STATIC, DEFAULT, GROUP_SOURCE = Source


def entry(entries: list[Entry], name: str) -> Entry:
    return next(each for each in entries if each.name == name)


def synonyms(found: Entry) -> list[tuple[str, str | None, Source]]:
    return [tuple(each) for each in found.synonyms]


def test_a_topic_without_overrides_shows_the_defaults() -> None:
    entries = describe_topic({}, NOTHING)
    assert len(entries) == 41
    found = entry(entries, "segment.bytes")
    assert found == Entry(
        name="segment.bytes",
        value="1073741824",
        source=DEFAULT,
        read_only=False,
        sensitive=False,
        kind=3,
        synonyms=(SynonymEntry("log.segment.bytes", "1073741824", DEFAULT),),
        documentation="Roll to a new segment at this size.",
    )
    assert all(each.source is DEFAULT and each.documentation for each in entries)


def test_an_override_stands_before_what_it_hides() -> None:
    layers = Layers(
        {"log.segment.bytes": "3145728"}, {"log.segment.bytes": "4194304"}, {"log.segment.bytes": "5242880"}
    )
    found = entry(describe_topic({"segment.bytes": " 2097152"}, layers), "segment.bytes")
    assert (found.value, found.source) == ("2097152", TOPIC_SOURCE)
    assert synonyms(found) == [
        ("segment.bytes", "2097152", TOPIC_SOURCE),
        ("log.segment.bytes", "3145728", BROKER_SOURCE),
        ("log.segment.bytes", "4194304", CLUSTER),
        ("log.segment.bytes", "5242880", STATIC),
        ("log.segment.bytes", "1073741824", DEFAULT),
    ]


def test_settings_in_several_units() -> None:
    changed = Layers({}, {"log.retention.ms": "604800001"}, {})
    found = entry(describe_topic({}, changed), "retention.ms")
    assert (found.value, found.source) == ("604800001", CLUSTER)
    assert synonyms(found) == [("log.retention.ms", "604800001", CLUSTER), ("log.retention.hours", "168", DEFAULT)]
    assert synonyms(entry(describe_topic({}, NOTHING), "retention.ms")) == []
    hours = entry(describe_topic({}, Layers({}, {}, {"log.retention.hours": "2"})), "retention.ms")
    assert (hours.value, hours.source) == ("7200000", DEFAULT)


def test_keys_choose_and_hidden_ones_show_only_when_set() -> None:
    assert [each.name for each in describe_topic({}, NOTHING, ["retention.ms", "nonsense"])] == ["retention.ms"]
    assert len(describe_topic({}, NOTHING, [])) == 41
    assert "internal.segment.bytes" not in {each.name for each in describe_topic({}, NOTHING)}
    assert entry(describe_topic({"internal.segment.bytes": "1000"}, NOTHING), "internal.segment.bytes").value == "1000"


def test_a_stored_name_that_nobody_knows_keeps_its_value_to_itself() -> None:
    found = entry(describe_topic({"from.the.future": "secret"}, NOTHING), "from.the.future")
    assert (found.value, found.sensitive, found.kind, found.source) == (None, True, 0, TOPIC_SOURCE)


def test_a_broker_shows_all_its_settings() -> None:
    config, _ = load({"node.id": "4", "log.dirs": "/a,/b", "num.partitions": "3"})
    layers = Layers({"log.cleaner.backoff.ms": "1"}, {"log.cleaner.backoff.ms": "2"}, config.static)
    entries = describe_broker(layers)
    assert len(entries) == 363
    assert [entry(entries, name).value for name in ("node.id", "broker.id", "log.dirs")] == ["4", "4", "/a,/b"]
    partitions = entry(entries, "num.partitions")
    assert (partitions.value, partitions.source, partitions.read_only) == ("3", STATIC, True)
    backoff = entry(entries, "log.cleaner.backoff.ms")
    assert (backoff.value, backoff.source, backoff.read_only) == ("1", BROKER_SOURCE, False)
    assert [each.source for each in backoff.synonyms] == [BROKER_SOURCE, CLUSTER, DEFAULT]


def test_passwords_are_never_shown() -> None:
    layers = Layers(
        {"sasl.jaas.config": "hunter2"}, {}, {"ssl.key.password": "hunter2", "listener.name.x.y": "hunter2"}
    )
    entries = describe_broker(layers)
    assert "hunter2" not in repr(entries)
    found = entry(entries, "sasl.jaas.config")
    assert (found.value, found.sensitive, found.kind, found.source) == (None, True, 9, BROKER_SOURCE)
    assert entry(entries, "listener.name.x.y").sensitive


def test_settings_of_a_listener_are_described_as_their_row() -> None:
    layers = Layers(
        {"listener.name.out.ssl.keystore.location": "/new"},
        {},
        {"listener.name.out.ssl.keystore.location": "/old", "listener.name.out.ssl.key.password": "hunter2"},
    )
    entries = describe_broker(layers)
    found = entry(entries, "listener.name.out.ssl.keystore.location")
    assert (found.value, found.source, found.read_only, found.sensitive) == ("/new", BROKER_SOURCE, False, False)
    assert [each.value for each in found.synonyms] == ["/new", "/old"]
    assert entry(entries, "listener.name.out.ssl.key.password").sensitive
    assert "hunter2" not in repr(entries)


def test_tls_is_altered_for_single_listeners() -> None:
    own = [ConfigChange("listener.name.out.ssl.keymanager.algorithm", Op.SET, "x")]
    assert alter_broker(NOTHING, own, per_broker=True) == {"listener.name.out.ssl.keymanager.algorithm": "x"}
    refusal = alter_broker(NOTHING, own, per_broker=False)
    assert isinstance(refusal, Refusal)
    assert "broker id must be specified: listener.name.out.ssl.keymanager.algorithm" in refusal.message
    refusal = alter_broker(NOTHING, [ConfigChange("ssl.keymanager.algorithm", Op.SET, "x")], per_broker=True)
    assert isinstance(refusal, Refusal)
    assert "only per-listener using the listener prefix: ssl.keymanager.algorithm" in refusal.message


def test_cluster_defaults_are_only_those_that_were_set() -> None:
    layers = Layers({"log.retention.ms": "5"}, {"log.retention.ms": "6"}, {"log.retention.ms": "7"})
    assert [(each.name, each.value, synonyms(each)) for each in describe_cluster_defaults(layers)] == [
        ("log.retention.ms", "6", [("log.retention.ms", "6", CLUSTER)])
    ]
    assert describe_cluster_defaults(NOTHING) == []


def test_a_broker_runs_with_the_strongest_layer() -> None:
    layers = Layers(
        {"message.max.bytes": "1"}, {"message.max.bytes": "2", "num.partitions": "2"}, {"num.partitions": "3"}
    )
    assert effective(layers) == {"message.max.bytes": "1", "num.partitions": "2"}


@pytest.mark.parametrize(
    ("current", "change", "result"),
    [
        ({}, ConfigChange("segment.bytes", Op.SET, "2097152"), {"segment.bytes": "2097152"}),
        ({"segment.bytes": "2097152"}, ConfigChange("segment.bytes", Op.DELETE, None), {}),
        ({}, ConfigChange("segment.bytes", Op.DELETE, None), {}),
        ({}, ConfigChange("no.such.name", Op.DELETE, None), {}),
        ({}, ConfigChange("cleanup.policy", Op.APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        (COMPACTED, ConfigChange("cleanup.policy", Op.APPEND, "compact"), COMPACTED),
        (BOTH, ConfigChange("cleanup.policy", Op.SUBTRACT, "delete"), {"cleanup.policy": "compact"}),
        (BOTH, ConfigChange("cleanup.policy", Op.SUBTRACT, "compact,delete"), {"cleanup.policy": ""}),
        ({}, ConfigChange("cleanup.policy", Op.SUBTRACT, "nonsense"), {"cleanup.policy": "delete"}),
        ({"from.the.future": "1"}, ConfigChange("flush.ms", Op.SET, "1"), {"from.the.future": "1", "flush.ms": "1"}),
    ],
)  # fmt: skip
def test_changes_of_a_topic(current: dict[str, str], change: ConfigChange, result: dict[str, str]) -> None:
    before = dict(current)
    assert alter_topic(current, [change], VALUES) == result
    assert current == before


INVALID_CONFIG, INVALID_REQUEST = WireError.INVALID_CONFIG, WireError.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ([("segment.bytes", Op.SET, "10")], INVALID_CONFIG, "segment.bytes must be at least 1048576, got 10"),
        ([("segment.bytess", Op.SET, "1")], INVALID_CONFIG, "Unknown topic config name: segment.bytess; did you mean"),
        ([("segment.bytes", Op.APPEND, "1")], INVALID_CONFIG, "Can't APPEND to key segment.bytes: it is not a list"),
        ([("no.such.name", Op.SUBTRACT, "1")], INVALID_CONFIG, "Can't SUBTRACT to key no.such.name"),
        ([("cleanup.policy", Op.APPEND, "x")], INVALID_CONFIG, "cleanup.policy must be a list of: compact, delete"),
        ([("segment.bytes", Op.SET, None)], INVALID_REQUEST, "Null value not supported for : segment.bytes"),
        ([("flush.ms", Op.SET, "1"), ("flush.ms", Op.SET, "2")], INVALID_REQUEST, "Error due to duplicate config keys"),
        ([("flush.ms", 9, "1")], INVALID_REQUEST, "Unknown operations type 9"),
        ([("remote.storage.enable", Op.SET, "true")], INVALID_CONFIG, "tiered storage is not supported yet"),
    ],
)  # fmt: skip
def test_changes_of_a_topic_that_are_refused(
    changes: list[tuple[str, int, str | None]], error: WireError, words: str
) -> None:
    refusal = alter_topic({}, [ConfigChange(*change) for change in changes], VALUES)
    assert isinstance(refusal, Refusal)
    assert refusal.error is error
    assert words in refusal.message


def test_a_new_topic() -> None:
    assert new_topic([("retention.ms", "5")], VALUES) == {"retention.ms": "5"}
    null = new_topic([("retention.ms", None)], VALUES)
    assert null == Refusal(INVALID_CONFIG, "Null value not supported for topic configs: retention.ms")
    unknown = new_topic([("retention.m", "1")], VALUES)
    assert unknown == Refusal(INVALID_CONFIG, "Unknown topic config name: retention.m; did you mean retention.ms?")


@pytest.mark.parametrize("per_broker", [True, False])
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (("num.partitions", Op.SET, "3"), INVALID_REQUEST, "Cannot update these configs dynamically: num.partitions"),
        (("log.segment.bytes", Op.SET, "10"), INVALID_REQUEST, "log.segment.bytes must be at least 1048576, got 10"),
        (("log.retention.ms", Op.SET, "0"), INVALID_REQUEST, "log.retention.ms must be at least 1, or -1"),
        (("log.cleanup.policy", Op.APPEND, "x"), INVALID_REQUEST, "log.cleanup.policy must be a list of"),
        (("log.segment.bytes", Op.APPEND, "1"), INVALID_CONFIG, "Can't APPEND to key log.segment.bytes"),
        (("no.such", Op.APPEND, "1"), INVALID_CONFIG, "Unknown broker config name: no.such"),
        (("log.segment.bytes", Op.SET, None), INVALID_REQUEST, "Null value not supported for : log.segment.bytes"),
        (("max.connections.per.ip.overrides", Op.SET, "a:b"), INVALID_REQUEST, "address:limit pairs, got 'a:b'"),
        (("log.segment.byte", Op.SET, "1"), INVALID_CONFIG, "did you mean log.segment.bytes?"),
    ],
)  # fmt: skip
def test_changes_of_a_broker_that_are_refused(
    change: tuple[str, int, str | None], error: WireError, words: str, per_broker: bool
) -> None:
    refusal = alter_broker(NOTHING, [ConfigChange(*change)], per_broker=per_broker)
    assert isinstance(refusal, Refusal)
    assert refusal.error is error
    assert words in refusal.message


def test_some_settings_belong_to_one_broker() -> None:
    changes = [ConfigChange("sasl.jaas.config", Op.SET, "x")]
    assert alter_broker(NOTHING, changes, per_broker=True) == {"sasl.jaas.config": "x"}
    refusal = alter_broker(NOTHING, changes, per_broker=False)
    assert isinstance(refusal, Refusal)
    assert refusal.error is INVALID_REQUEST
    assert "broker id must be specified: sasl.jaas.config" in refusal.message


def test_passwords_and_keys_are_told_from_certificates() -> None:
    names = {
        "sasl.jaas.config": True,
        "listener.name.a.plain.sasl.jaas.config": True,
        "listener.name.a.ssl.keystore.password": True,
        "listener.name.a.ssl.keystore.key": True,
        "listener.name.a.ssl.truststore.certificates": False,
        "listener.name.a.ssl.keystore.certificate.chain": False,
        "listener.name.a.ssl.keystore.location": False,
        "no.such.setting": False,
    }
    found = secrets_in([ConfigChange(name, Op.SET, "x") for name in names])
    assert found == sorted(name for name, secret in names.items() if secret)
    assert secrets_in([ConfigChange("sasl.jaas.config", Op.DELETE, None)]) == []


def test_all_brokers_go_by_the_same_number_of_in_sync_replicas() -> None:
    changes = [ConfigChange("min.insync.replicas", Op.SET, "1")]
    assert alter_broker(NOTHING, changes, per_broker=False) == {"min.insync.replicas": "1"}
    refusal = alter_broker(NOTHING, changes, per_broker=True)
    assert isinstance(refusal, Refusal)
    assert refusal.error is WireError.INVALID_CONFIG
    assert alter_broker(NOTHING, [ConfigChange("min.insync.replicas", Op.DELETE, None)], per_broker=True) == {}


def test_a_cluster_wide_change_is_checked_even_where_a_broker_hides_it() -> None:
    layers = Layers({"log.segment.bytes": "2097152"}, {}, {})
    assert isinstance(alter_broker(layers, [ConfigChange("log.segment.bytes", Op.SET, "1")], per_broker=False), Refusal)


def test_changes_of_a_broker() -> None:
    layers = Layers({"log.roll.ms": "5"}, {"log.retention.ms": "6"}, {"log.cleanup.policy": "compact"})
    change = [ConfigChange("log.roll.ms", Op.DELETE, None), ConfigChange("log.cleanup.policy", Op.APPEND, "delete")]
    assert alter_broker(layers, change, per_broker=True) == {"log.cleanup.policy": "compact,delete"}
    assert alter_broker(layers, [ConfigChange("num.partitions", Op.DELETE, None)], per_broker=False) == {
        "log.retention.ms": "6"
    }


# ── groups ──

SESSION, HEARTBEAT, ASSIGNMENT = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


def test_a_group_follows_the_broker_until_it_has_a_value_of_its_own() -> None:
    layers = Layers(
        {}, {"group.consumer.assignment.interval.ms": "7"}, {"group.consumer.heartbeat.interval.ms": "6000"}
    )
    entries = describe_group({SESSION: "50000"}, layers)
    assert [(each.name, each.value, each.source, each.read_only, each.kind) for each in entries] == [
        (ASSIGNMENT, "7", CLUSTER, False, 3),
        (HEARTBEAT, "6000", STATIC, False, 3),
        (SESSION, "50000", GROUP_SOURCE, False, 3),
    ]
    assert synonyms(entry(entries, SESSION)) == [
        (SESSION, "50000", GROUP_SOURCE),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT),
    ]
    assert [each.name for each in describe_group({}, layers, [SESSION])] == [SESSION]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (SESSION, "44999", "must be at least group.consumer.min.session.timeout.ms (45000), got 44999"),
        (SESSION, "60001", "must be at most group.consumer.max.session.timeout.ms (60000), got 60001"),
        (HEARTBEAT, "4999", "must be at least group.consumer.min.heartbeat.interval.ms (5000), got 4999"),
        (HEARTBEAT, "15001", "must be at most group.consumer.max.heartbeat.interval.ms (15000), got 15001"),
        (ASSIGNMENT, "15001", "must be at most group.consumer.max.assignment.interval.ms (15000), got 15001"),
        (ASSIGNMENT, "-1", "must be at least 0, got -1"),
        (SESSION, "long", "must be a plain whole number, got long"),
        ("share.session.timeout.ms", "50000", "is a setting of share groups, which are not supported yet"),
        ("streams.num.standby.replicas", "1", "is a setting of streams groups, which are not supported yet"),
    ],
)
def test_a_group_may_not_choose_what_the_broker_does_not_allow(name: str, value: str, words: str) -> None:
    refusal = Refusal(WireError.INVALID_CONFIG, f"{name} {words}")
    assert alter_group({}, [ConfigChange(name, Op.SET, value)], VALUES) == refusal


def test_a_group_does_not_report_less_often_than_it_must() -> None:
    values = VALUES | {"group.consumer.min.session.timeout.ms": 1}
    assert alter_group({}, [ConfigChange(SESSION, Op.SET, "5000")], values) == Refusal(
        WireError.INVALID_CONFIG, f"{HEARTBEAT} must be less than {SESSION} (5000), got 5000"
    )
    assert alter_group({}, [ConfigChange(SESSION, Op.SET, "5001")], values) == {SESSION: "5001"}


def test_settings_of_a_group_change_one_by_one() -> None:
    current = {SESSION: "50000", "of.tomorrow": "x"}
    changed = alter_group(
        current, [ConfigChange(HEARTBEAT, Op.SET, "6000"), ConfigChange(SESSION, Op.DELETE, None)], VALUES
    )
    assert changed == {HEARTBEAT: "6000", "of.tomorrow": "x"}
    assert alter_group({}, [ConfigChange("nonsense", Op.DELETE, None)], VALUES) == {}
    for change in (ConfigChange("nonsense", Op.SET, "1"), ConfigChange(SESSION, Op.APPEND, "1")):
        refused = alter_group({}, [change], VALUES)
        assert isinstance(refused, Refusal)
        assert refused.error is WireError.INVALID_CONFIG
