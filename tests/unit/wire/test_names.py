"""Names in messages: every declared name is found, and elements without a counterpart are left out."""

from dataclasses import dataclass
from uuid import UUID

import pytest

from moldau.wire.declare import Array, Field, Kind, Name, NameOf, Nested, Text, fields_of
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
    read_subscription,
    write_subscription,
)
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.join_group import JoinGroupProtocol
from moldau.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from moldau.wire.messages.registry import BY_KEY
from moldau.wire.names import ERROR_TEXT, renamed

ID = UUID(int=7)


@dataclass
class Upper:
    """Upper case on the other side; names that begin with x stay on this one."""

    def name(self, kind: Name, name: str) -> str | None:
        return None if name.startswith("x") else f"{kind.of} {name.upper()}"

    def topic_id(self, topic_id: UUID) -> UUID:
        return UUID(int=topic_id.int + 1)

    def text(self, text: str) -> str:
        return text.upper()


def test_names_of_nested_structs_change_and_other_texts_do_not() -> None:
    config = CreatableTopicConfig(name="retention.ms", value="1")
    topics = tuple(
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=(config,))
        for name in ("a", "x-ray", "b")
    )
    request = CreateTopicsRequest(topics=topics, timeout_ms=5)
    found = renamed(request, Upper())
    assert found is not None
    assert [topic.name for topic in found.topics] == ["topic A", "topic B"]
    assert found.topics[0].configs == (config,)
    assert found.timeout_ms == 5


def test_names_whose_type_is_in_another_field() -> None:
    rows = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name="one", configuration_keys=None) for kind in (2, 4, 32)
    )
    found = renamed(DescribeConfigsRequest(resources=rows), Upper())
    assert found is not None
    assert [row.resource_name for row in found.resources] == ["topic ONE", "one", "group ONE"]
    keys = FindCoordinatorRequest(key_type=1, coordinator_keys=("t", "x"))
    assert renamed(keys, Upper()) == FindCoordinatorRequest(key_type=1, coordinator_keys=("transactional id T",))


def test_nothing_stays_nothing_and_a_message_without_names_is_itself() -> None:
    beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=None)
    found = renamed(beat, Upper())
    assert found is not None
    assert (found.group_id, found.subscribed_topic_names) == ("group G", None)
    assert renamed(ListGroupsResponse(groups=(ListedGroup(group_id="x"),)), Upper()) == ListGroupsResponse()
    empty = ListGroupsResponse()
    assert renamed(empty, Upper()) is empty


# Texts in clients' messages that are not names: a new one has to be put here, or declared as a name.
OTHER_TEXTS = {
    "assignor_name", "client_host", "client_id", "client_software_name", "client_software_version", "cluster_id",
    "committed_metadata", "configuration_keys", "documentation", "feature", "group_instance_id", "group_state",
    "group_type", "host", "instance_id", "leader", "log_dir", "mechanism", "mechanisms", "member_id", "metadata",
    "name", "path", "protocol_data", "protocol_name", "protocol_type", "rack", "rack_id", "reason", "server_assignor",
    "state_filters", "states_filter", "transaction_state",
    "types_filter", "unknown_state_filters", "value",
}  # fmt: skip
# The structs in which `name` is not that of a topic.
OTHER_NAMES = {
    "AlterableConfig", "CreatableTopicConfig", "CreatableTopicConfigs", "DescribeConfigsResourceResult",
    "DescribeConfigsSynonym", "FinalizedFeatureKey", "JoinGroupProtocol", "SupportedFeatureKey",
}  # fmt: skip


def texts(cls: type, seen: set[type]) -> list[tuple[type, Field]]:
    if cls in seen:
        return []
    seen.add(cls)
    found: list[tuple[type, Field]] = []
    for field in fields_of(cls):
        kind: Kind[object] = field.kind
        while isinstance(kind, Array):
            kind = kind.of
        if isinstance(kind, Nested):
            found += texts(kind.cls, seen)
        elif isinstance(kind, Text) and not isinstance(kind, Name | NameOf):
            found.append((cls, field))
    return found


# Rights, users, quotas and organisations of the whole cluster: their names mean the same to everyone.
OF_THE_CLUSTER = ("Acls", "ClientQuotas", "DelegationToken", "Organisations", "UserScramCredentials")
OF_CLIENTS = [api for api in BY_KEY.values() if not api.between_brokers and not api.name.endswith(OF_THE_CLUSTER)]


@pytest.mark.parametrize("api", OF_CLIENTS, ids=lambda api: api.name)
def test_every_text_is_declared_a_name_or_known_not_to_be_one(api: object) -> None:
    for message in (api.request, api.response):  # type: ignore[attr-defined]
        for cls, field in texts(message, set()):
            known = field.name in OTHER_TEXTS and (field.name != "name" or cls.__name__ in OTHER_NAMES)
            assert known or field.name.endswith(ERROR_TEXT), f"{cls.__name__}.{field.name}"


def test_names_in_the_consumer_protocol_are_renamed() -> None:
    subscription = ConsumerProtocolSubscription(
        topics=("a", "x"), user_data=b"own", owned_partitions=(ConsumerProtocolTopic(topic="a", partitions=(1,)),)
    )
    for version in range(4):
        protocol = JoinGroupProtocol(name="range", metadata=write_subscription(subscription, version))
        found = renamed(protocol, Upper())
        assert found is not None
        told = read_subscription(found.metadata)
        assert (told.topics, told.user_data) == (("topic A",), b"own")
        assert [each.topic for each in told.owned_partitions] == (["topic A"] if version else [])


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\x01\0\x05http:", b"\0\x09" + b"\0" * 12, b"\xff\xff"])
def test_other_bytes_stay_as_they_are(metadata: bytes) -> None:
    """Of Kafka Connect, of a version that is not known, or of nothing at all."""
    protocol = JoinGroupProtocol(name="sessioned", metadata=metadata)
    assert renamed(protocol, Upper()) == protocol
