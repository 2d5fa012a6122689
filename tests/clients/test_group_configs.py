"""Settings of single groups: with confluent-kafka, with Kafka's own tool (needs java), and felt by a member."""

import re
import uuid
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kafka.protocol.admin import ListConfigResourcesRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from moldau.wire.codec import decode, encode
from moldau.wire.headers import pack_request_header, read_response_header
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.clients import confluent
from support.clients.raw import RawClient
from support.eventually import eventually
from support.kafka import jvm

SECONDS = 30
TOPIC, GROUP, HEARTBEAT_API, BY_GROUP, UNSUPPORTED_VERSION = 2, 32, 68, 0, 35
HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"


@pytest.fixture
def group() -> str:
    return f"g/{uuid.uuid4().hex}"  # a name that could be mistaken for a path


def alter(admin: AdminClient, group: str, name: str, value: str | None) -> None:
    """Sets a value, or removes it."""
    how = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
    entry = ConfigEntry(name, value, incremental_operation=how)
    asked = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin.incremental_alter_configs([asked])[asked].result(SECONDS)


def own(admin: AdminClient, group: str) -> dict[str, str]:
    asked = ConfigResource(ResourceType.GROUP, group)
    found = admin.describe_configs([asked])[asked].result(SECONDS)
    return {each.name: each.value for each in found.values() if each.source == ConfigSource.GROUP_CONFIG.value}


def listed(client: RawClient, kind: int = GROUP) -> set[str]:
    answer = client.ask(ListConfigResourcesRequest(resource_types=[kind]), 1)
    assert answer.error_code == 0
    return {each.resource_name for each in answer.config_resources if each.resource_type == kind}


def heartbeat(client: RawClient, **asked: Any) -> ConsumerGroupHeartbeatResponse:
    """ConsumerGroupHeartbeat 1, which kafka-python does not know."""
    header = pack_request_header(HEARTBEAT_API, 1, 7, "raw")
    client.send_frame(header + encode(ConsumerGroupHeartbeatRequest(**asked), 1))
    frame = client.read_frame()
    return decode(ConsumerGroupHeartbeatResponse, 1, frame, read_response_header(HEARTBEAT_API, 1, frame)[1])


def test_a_group_gets_settings_of_its_own(broker: AnyBroker, admin: AdminClient, group: str) -> None:
    assert own(admin, group) == {}
    alter(admin, group, SESSION, "50000")
    alter(admin, group, HEARTBEAT, "6000")
    eventually(lambda: own(admin, group) == {HEARTBEAT: "6000", SESSION: "50000"}, "the values are described")
    with RawClient(broker.bootstrap) as client:
        assert group in listed(client)
        alter(admin, group, HEARTBEAT, None)
        alter(admin, group, SESSION, None)
        eventually(lambda: own(admin, group) == {}, "the values are gone")
        assert group not in listed(client)


@pytest.mark.parametrize(
    ("name", "value"),
    [(HEARTBEAT, "0"), (HEARTBEAT, "15001"), (SESSION, "60001"), (SESSION, "long"), ("nonsense", "1")],
)
def test_what_a_group_may_not_have_is_refused(admin: AdminClient, group: str, name: str, value: str) -> None:
    with pytest.raises(KafkaException) as refused:
        alter(admin, group, name, value)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert name in refused.value.args[0].str()
    assert own(admin, group) == {}


def test_what_has_settings_is_listed(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()
    with RawClient(broker.bootstrap) as client:
        assert topic in listed(client, TOPIC)
        all_kinds = client.ask(ListConfigResourcesRequest(resource_types=[]), 1).config_resources
        assert {(TOPIC, topic)} < {(each.resource_type, each.resource_name) for each in all_kinds}
        assert client.ask(ListConfigResourcesRequest(), 0).config_resources == []  # client metrics
        assert client.ask(ListConfigResourcesRequest(resource_types=[99]), 1).error_code == UNSUPPORTED_VERSION


def test_a_living_member_is_told_at_its_next_heartbeat(
    broker: AnyBroker, admin: AdminClient, group: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    member = {"group_id": group, "member_id": "member"}
    first = {"member_epoch": 0, "rebalance_timeout_ms": 60_000, "subscribed_topic_names": (topic,)}
    with RawClient(broker.bootstrap) as client:
        client.ask(FindCoordinatorRequest(key_type=BY_GROUP, coordinator_keys=[group]), 4)
        joined = eventually(
            lambda: (answer := heartbeat(client, **member, **first, topic_partitions=())).error_code == 0 and answer,
            "the coordinator is there",
        )
        assert joined.heartbeat_interval_ms != 6000
        alter(admin, group, SESSION, "50000")  # the broker's may be too short for the next
        alter(admin, group, HEARTBEAT, "6000")

        def beat() -> int:
            answer = heartbeat(client, **member, member_epoch=joined.member_epoch)
            assert answer.error_code == 0
            return answer.heartbeat_interval_ms

        eventually(lambda: beat() == 6000, "the member is told the group's own interval")
        alter(admin, group, HEARTBEAT, None)
        eventually(lambda: beat() == joined.heartbeat_interval_ms, "the member is told the broker's interval")
        heartbeat(client, **member, member_epoch=-1)


def test_settings_of_groups_outlive_a_restart(start_broker: StartBroker, group: str) -> None:
    process = start_broker()
    alter(confluent.admin(process.bootstrap), group, SESSION, "50000")
    process.stop()
    process.start()
    assert own(confluent.admin(process.bootstrap), group) == {SESSION: "50000"}


@pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")
def test_config_command(broker: AnyBroker, group: str) -> None:
    def config(*arguments: str, code: int = 0) -> str:
        entity = ["--bootstrap-server", broker.bootstrap, "--entity-type", "groups"]
        done = jvm.run("kafka.admin.ConfigCommand", *entity, *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    named = ("--entity-name", group)
    config(*named, "--alter", "--add-config", f"{HEARTBEAT}=6000,{SESSION}=50000")
    told = config("--describe")  # of all groups that exist or have settings
    of_group = told[told.index(f"Dynamic configs for group {group} are:") :]
    assert re.search(rf"{HEARTBEAT}=6000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{HEARTBEAT}=6000, ", of_group)
    told = config(*named, "--describe", "--all")
    assert f"{SESSION}=50000" in told
    assert "consumer.assignment.interval.ms=" in told
    config(*named, "--alter", "--delete-config", f"{HEARTBEAT},{SESSION}")
    assert "doesn't exist and doesn't have dynamic config" in config(*named, "--describe")
    refused = config(*named, "--alter", "--add-config", f"{SESSION}=60001", code=1)
    assert "InvalidConfigurationException" in refused
