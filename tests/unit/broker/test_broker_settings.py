"""Broker settings: Kafka's facts, an existing server.properties, and a sentence for everything that does not fit."""

from dataclasses import fields
from pathlib import Path
from typing import Any, get_origin

import pytest

from moldau.base.properties import read_properties
from moldau.base.settings import Kind, Live, Setting, SettingsRefused, text_of
from moldau.broker.node import EXIT_REFUSED, run
from moldau.broker.settings import BROKER, GUARDS, LATER, MEANINGLESS, NOT_YET, PLAIN_FIELDS, BrokerConfig, load
from moldau.log.settings import TOPIC

FACTS = [
    line.split("\t")
    for line in (Path(__file__).parent / "kafka_settings.tsv").read_text().splitlines()
    if not line.startswith("#")
]
OURS = {
    "log.dir": "./data",
    "node.id": "1",
    "queued.max.request.bytes": "134217728",
}  # defaults that are better here than in Kafka
SET_WHILE_RUNNING = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
OF_KAFKA_3 = {
    "leader.imbalance.per.broker.percentage",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.session.timeout.ms",
    "zookeeper.clientCnxnSocket",
    "zookeeper.ssl.cipher.suites",
    "zookeeper.ssl.client.enable",
    "zookeeper.ssl.enabled.protocols",
    "zookeeper.ssl.endpoint.identification.algorithm",
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.truststore.type",
}
OUR_OWN = {
    "moldau.audit.enable",
    "moldau.audit.max.records.per.second",
    "moldau.audit.topic.replication.factor",
    "sasl.oauthbearer.organisation.claim.name",
    "sasl.oauthbearer.unsafe.accept.unsigned.tokens.from.anyone",
    "moldau.inspection.processes",
    "moldau.inspection.timeout.ms",
    "moldau.schemas.topic",
}
OF_SCHEMAS = {  # of Confluent Server, and ours
    "confluent.key.schema.validation",
    "confluent.key.subject.name.strategy",
    "confluent.value.schema.validation",
    "confluent.value.subject.name.strategy",
    "moldau.key.schema",
    "moldau.key.schema.mode",
    "moldau.value.schema",
    "moldau.value.schema.mode",
}
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OF_THE_AUTHORIZER = {"allow.everyone.if.no.acl.found", "super.users"}  # which Kafka's class reads by itself
RESTART = {"config.providers", "listeners", "listener.security.protocol.map"}

SERVER_PROPERTIES = """
# A broker and a controller in one process, as KRaft has it.
process.roles=broker,controller
node.id=7
controller.quorum.voters=7@box.example:9093
controller.listener.names=CONTROLLER

listeners=INSIDE://:9092,OUTSIDE://10.0.0.5:9094,CONTROLLER://:9093
advertised.listeners=INSIDE://box.example:9092,OUTSIDE://broker.example.com:9094
listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL
inter.broker.listener.name=INSIDE

num.network.threads = 3
num.io.threads = 8
socket.request.max.bytes : 104857600
log.dirs=/var/lib/kafka/a,\\
         /var/lib/kafka/b
num.partitions=6
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.hours=24
log.segment.bytes=536870912
compression.type=zstd
metric.reporters=org.example.Reporter
"""


def problems(properties: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsRefused) as refused:
        load(properties)
    assert str(refused.value) == "\n".join(problem.message for problem in refused.value.problems)
    return [problem.message for problem in refused.value.problems]


def test_the_tables_have_every_name_that_kafka_has_and_no_other() -> None:
    for scope, table, extra in (
        ("topic", TOPIC, OF_SCHEMAS),
        ("broker", BROKER, SET_WHILE_RUNNING | OF_KAFKA_3 | OF_THE_AUTHORIZER | OUR_OWN),
    ):
        assert {setting.name for setting in table} - extra == {fact[1] for fact in FACTS if fact[0] == scope}
    names = [setting.name for setting in BROKER]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact[0]}-{fact[1]}")
def test_kinds_defaults_and_bounds_are_kafkas(fact: list[str]) -> None:
    scope, name, kind, null, default, least, most, live, internal = fact
    setting: Setting = (TOPIC if scope == "topic" else BROKER)[name]
    assert setting.kind.name == kind.replace("BOOLEAN", "BOOL")
    assert text_of(setting.default) == OURS.get(name, None if null == "null" else default)
    assert setting.least == (float(least) if least else None)
    assert setting.most == (float(most) if most else None)
    assert setting.hidden == (internal == "true")
    if live:
        assert setting.live is (Live.READ_ONLY if name in RESTART else Live[live])
    if setting.default is not None:
        assert setting.parse(str(text_of(setting.default))) == setting.default


def test_every_name_has_one_fate() -> None:
    used = {setting.name for setting in BROKER} - MEANINGLESS.keys() - NOT_YET.keys()
    assert not MEANINGLESS.keys() & NOT_YET.keys()
    assert GUARDS.keys() <= NOT_YET.keys()
    assert {"log.dirs", "message.max.bytes", "log.segment.bytes", "num.partitions"} <= used
    assert len(used) == 194
    assert all(group.settings for group in LATER)


def test_nothing_set_is_a_broker_too() -> None:
    config, _ = load({}, host_name="box.example")
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://:9092"]
    assert [str(listener) for listener in config.advertised] == ["PLAINTEXT://box.example:9092"]
    assert config.log_dirs == ("./data",)
    assert config.node_id == 1
    assert config.topic_defaults().retention_ms == 604_800_000


def test_an_existing_server_properties_starts_with_warnings_only() -> None:
    config, warnings = load(read_properties(SERVER_PROPERTIES))
    assert config.node_id == 7
    assert [str(listener) for listener in config.listeners] == ["INSIDE://:9092", "OUTSIDE://10.0.0.5:9094"]
    assert [listener.address for listener in config.advertised] == ["box.example:9092", "broker.example.com:9094"]
    assert config.log_dirs == ("/var/lib/kafka/a", "/var/lib/kafka/b")
    assert config.num_partitions == 6
    topic = config.topic_defaults()
    assert (topic.retention_ms, topic.segment_bytes, topic.compression_type) == (86_400_000, 2**29, "zstd")
    assert config.topic_config({"retention.ms": "5"}).retention_ms == 5
    assert warnings == [
        "process.roles has no meaning here and is ignored: metadata is in the store, there is no KRaft quorum",
        "controller.quorum.voters has no meaning here and is ignored: metadata is in the store, "
        "there is no KRaft quorum",
        "controller.listener.names has no meaning here and is ignored: metadata is in the store, "
        "there is no KRaft quorum",
        "num.network.threads has no meaning here and is ignored: one event loop serves requests, "
        "there are no thread pools to size",
        "num.io.threads has no meaning here and is ignored: one event loop serves requests, "
        "there are no thread pools to size",
        "metric.reporters has no meaning here and is ignored: there are no Java metrics reporters",
        "listeners has CONTROLLER://:9093, which is not opened: there is no KRaft quorum",
        "listeners has INSIDE://:9092, OUTSIDE://10.0.0.5:9094 without authentication: every client that can connect "
        "may do everything; listen on 127.0.0.1, use a SASL listener, or set authorizer.class.name and ACLs",
    ]


@pytest.mark.parametrize(
    ("properties", "warned"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, True),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092"}, False),
        ({"listeners": "PLAINTEXT://10.0.0.5:9092", "authorizer.class.name": AUTHORIZER}, False),
        (
            {
                "listeners": "PLAINTEXT://10.0.0.5:9092",
                "authorizer.class.name": AUTHORIZER,
                "super.users": "User:admin;User:ANONYMOUS",
            },
            True,
        ),
    ],
)
def test_a_listener_that_is_open_to_everyone_is_warned_of(properties: dict[str, str], warned: bool) -> None:
    _, warnings = load({**properties, "advertised.listeners": "PLAINTEXT://10.0.0.5:9092"})
    assert [" without authentication: " in warning for warning in warnings] == [True] * warned


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"num.partition": "3"}, "Unknown broker config name: num.partition; did you mean num.partitions?"),
        ({"num.partitions": "0"}, "num.partitions must be at least 1, got 0"),
        ({"message.max.bytes": "1MB"}, "message.max.bytes must be a plain whole number, got 1MB; write 1048576"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be at least 1, or -1 for ever, got 0"),
        ({"log.retention.hours": "0"}, "log.retention.hours must be at least 1, or -1 for ever, got 0"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be at least 1, got 0"),
        ({"log.dirs": ""}, "log.dirs must be a list of directories, and one of them is empty"),
        ({"log.dirs": "/a,,/b"}, "log.dirs must be a list of directories, and one of them is empty"),
        (
            {"node.id": "1", "broker.id": "2"},
            "broker.id must be the same as node.id where both are set, got 2 and 1",
        ),
        ({"broker.id": "-2"}, "broker.id must be at least 0, got -2"),
        (
            {"process.roles": "controller"},
            "process.roles must include broker: Moldau has no KRaft controllers",
        ),
        (
            {"queued.max.request.bytes": "1000"},
            "queued.max.request.bytes must be at least socket.request.max.bytes (104857600), "
            "or -1 for no limit, got 1000",
        ),
        (
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip can be 0 only where max.connections.per.ip.overrides lets some addresses in",
        ),
        (
            {"max.connections.per.ip.overrides": "10.0.0.1:x"},
            "max.connections.per.ip.overrides must be a list of address:limit pairs, got '10.0.0.1:x'",
        ),
        (
            {"max.connections.per.ip.overrides": "10.0.0.1:2147483648"},
            "max.connections.per.ip.overrides must be a list of address:limit pairs, got '10.0.0.1:2147483648'",
        ),
        (
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"},
            "log.cleaner.min.compaction.lag.ms must be at most log.cleaner.max.compaction.lag.ms, got 9 and 5",
        ),
        (
            {"authorizer.class.name": "org.example.Authorizer"},
            "authorizer.class.name must be org.apache.kafka.metadata.authorizer.StandardAuthorizer or "
            "kafka.security.authorizer.AclAuthorizer: Moldau runs no Java classes, got 'org.example.Authorizer'",
        ),
        (
            {"super.users": "User:admin; alice"},
            "super.users must be principals as User:name, separated by semicolons, got 'alice'",
        ),
        (
            {"principal.builder.class": "org.example.Builder"},
            "principal.builder.class must be one of "
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder, got 'org.example.Builder'",
        ),
        (
            {"ssl.engine.factory.class": "org.example.Engines"},
            "ssl.engine.factory.class is not supported yet; Moldau would run without protection",
        ),
        (
            {"listener.name.outside.ssl.engine.factory.class": "org.example.Engines"},
            "listener.name.outside.ssl.engine.factory.class is not supported yet; Moldau would run without protection",
        ),
        (
            {"remote.log.storage.system.enable": "true"},
            "remote.log.storage.system.enable is not supported yet; records would stay on local disk only",
        ),
        (
            {"create.topic.policy.class.name": "org.example.Policy"},
            "create.topic.policy.class.name is not supported yet; "
            "Moldau runs no Java classes, so nothing would be checked",
        ),
        (
            {"inter.broker.protocol.version": "3.9"},
            "inter.broker.protocol.version belongs to versions of Kafka before 4.0; leave it out",
        ),
        ({"listener.name.outside.nonsense": "1"}, "Unknown broker config name: listener.name.outside.nonsense"),
        (
            {"group.consumer.session.timeout.ms": "9000"},
            "group.consumer.session.timeout.ms must be at least group.consumer.min.session.timeout.ms (45000), "
            "got 9000",
        ),
        (
            {"group.consumer.assignment.interval.ms": "15001"},
            "group.consumer.assignment.interval.ms must be at most group.consumer.max.assignment.interval.ms (15000), "
            "got 15001",
        ),
        (
            {"group.consumer.max.heartbeat.interval.ms": "6000", "group.consumer.min.heartbeat.interval.ms": "5001"},
            "group.consumer.heartbeat.interval.ms must be at least group.consumer.min.heartbeat.interval.ms (5001), "
            "got 5000",
        ),
        (
            {"group.consumer.min.session.timeout.ms": "5", "group.consumer.session.timeout.ms": "5000"},
            "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms (5000), got 5000",
        ),
    ],
)
def test_what_does_not_fit_gets_its_sentence(properties: dict[str, str], sentence: str) -> None:
    assert problems(properties) == [sentence]


def test_the_most_that_a_group_may_choose_is_not_below_the_least() -> None:
    assert (
        load({"group.consumer.max.assignment.interval.ms": "1000"})[0].group_consumer_max_assignment_interval_ms == 1000
    )
    assert problems({"group.consumer.max.session.timeout.ms": "1"}) == [
        "group.consumer.max.session.timeout.ms must be at least group.consumer.min.session.timeout.ms (45000), got 1",
        "group.consumer.session.timeout.ms must be at most group.consumer.max.session.timeout.ms (1), got 45000",
    ]


def test_all_problems_come_at_once() -> None:
    found = problems({"num.partitions": "x", "nonsense": "1", "listeners": "A:1", "authorizer.class.name": "org.A"})
    assert len(found) == 4


@pytest.mark.parametrize(
    "properties",
    [
        {"remote.log.storage.system.enable": "false"},
        {"ssl.provider": "x"},
        {"sasl.kerberos.service.name": "kafka"},
        {"listener.name.outside.sasl.login.class": "x"},
        {"listener.name.outside.max.connections": "10"},
        {"rsm.config.bucket": "x"},
    ],
)
def test_what_does_no_harm_is_a_warning(properties: dict[str, str]) -> None:
    _, warnings = load(properties | {"listeners": "PLAINTEXT://127.0.0.1:9092"})
    assert [warning.split()[0] for warning in warnings] == list(properties)


@pytest.mark.parametrize("name", sorted(GUARDS))
def test_every_guarded_setting_is_refused_unless_it_has_its_default(name: str) -> None:
    setting = BROKER[name]
    other = "true" if setting.kind is Kind.BOOL else setting.choices[0] if setting.choices else "something"
    assert problems({name: other}) == [f"{name} is not supported yet; {GUARDS[name]}"]
    if setting.default is not None:
        load({name: str(text_of(setting.default))})


def test_broker_id_is_the_older_name_of_node_id() -> None:
    config, _ = load({"broker.id": "3"})
    assert config.node_id == 3
    assert config.static["node.id"] == "3"


def test_requests_may_be_larger_than_the_default_memory_for_them() -> None:
    config, _ = load({"socket.request.max.bytes": "500000000"})
    assert config.socket_request_max_bytes > config.queued_max_request_bytes > 0


def test_limits_per_address() -> None:
    config, _ = load({"max.connections.per.ip.overrides": "10.0.0.1:5, [::1]:7", "max.connections.per.ip": "0"})
    assert config.ip_connection_limits == {"10.0.0.1": 5, "::1": 7}


def test_every_typed_field_is_a_row_of_its_type() -> None:
    config, _ = load({})
    for field in fields(BrokerConfig):
        if field.name in PLAIN_FIELDS:
            assert PLAIN_FIELDS[field.name] not in MEANINGLESS.keys() | NOT_YET.keys()
            assert isinstance(getattr(config, field.name), _plain(field.type)), field.name


def _plain(kind: Any) -> Any:
    """`tuple[str, ...]` as `tuple`, which isinstance takes."""
    return tuple if get_origin(kind) is tuple else kind


def test_a_wrong_name_is_reported_with_its_file_and_line(capsys: pytest.CaptureFixture[str]) -> None:
    properties = read_properties("# mine\nlog.dirs=/data\nlog.segment.byte=1\nnum.partitions=0", "server.properties")
    properties["num.partitions"] = "-1"  # by a flag
    assert run(properties) == EXIT_REFUSED
    value, unknown = capsys.readouterr().err.splitlines()
    assert unknown == (
        "moldau: server.properties:3: Unknown broker config name: log.segment.byte; did you mean log.segment.bytes?"
    )
    assert "server.properties" not in value
