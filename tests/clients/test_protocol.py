"""The wire protocol byte by byte: versions, headers, metadata, ordering. Produce and fetch have files of their own."""

import struct
import uuid

import pytest
from kafka.protocol.admin import CreateTopicsRequest, DescribeClusterRequest, DescribeTopicPartitionsRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest

from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.brokers.served import SERVED
from support.clients.raw import NO_TOPIC, ConnectionEndedError, RawClient
from support.log.batches import batch

NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, UNSUPPORTED_VERSION = 0, 3, 17, 35
TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG = 36, 37, 38, 40
UNKNOWN_TOPIC_ID = 100
API_VERSIONS, METADATA = 18, 3


def header(api: int, version: int, correlation: int, client_id: bytes | None = b"raw", tags: bytes = b"") -> bytes:
    """A request header by hand; the client id is a legacy string in every version."""
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return struct.pack(">hhi", api, version, correlation) + name + tags


def api_versions_v0_body(frame: bytes) -> tuple[int, dict[int, tuple[int, int]]]:
    """Error and API ranges of a v0 body, checking that nothing follows."""
    error, count = struct.unpack_from(">hi", frame, 4)
    rows = struct.unpack_from(f">{count * 3}h", frame, 10)
    assert len(frame) == 10 + count * 6
    return error, {rows[i]: (rows[i + 1], rows[i + 2]) for i in range(0, len(rows), 3)}


def test_api_versions_v0_lists_what_is_served(raw: RawClient) -> None:
    raw.send_frame(header(API_VERSIONS, 0, 41))
    frame = raw.read_frame()
    error, served = api_versions_v0_body(frame)
    assert (struct.unpack_from(">i", frame)[0], error) == (41, NONE)
    assert {api: served.get(api) for api in SERVED} == SERVED


@pytest.mark.parametrize("version", range(5))
def test_api_versions_in_every_version(raw: RawClient, version: int) -> None:
    answer = raw.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1.0"), version)
    assert answer.error_code == NONE
    listed = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert {api: listed.get(api) for api in SERVED} == SERVED


def test_api_versions_with_an_unknown_version_is_answered_in_v0(raw: RawClient) -> None:
    raw.send_frame(header(API_VERSIONS, 99, 42, tags=b"\0") + b"whatever a newer client may say")
    frame = raw.read_frame()
    expected = struct.pack(">ihi", 42, UNSUPPORTED_VERSION, 1) + struct.pack(">hhh", API_VERSIONS, 0, 4)
    assert frame == expected
    raw.send_frame(header(API_VERSIONS, 0, 43))
    assert api_versions_v0_body(raw.read_frame())[0] == NONE


def test_api_versions_refuses_a_software_name_outside_the_alphabet(raw: RawClient) -> None:
    """KIP-511: INVALID_REQUEST, in a body of the version asked for."""
    raw.send(ApiVersionsRequest(client_software_name="!!", client_software_version="1"), 3)
    assert raw.read_frame()[:6] == struct.pack(">ih", raw.correlation, 42)


@pytest.mark.parametrize(
    ("api", "version"), [(METADATA, 14), (METADATA, -1), (0, 2), (1, 3), (1, 99), (999, 0), (-5, 0)]
)
def test_any_other_unsupported_version_closes_the_connection(raw: RawClient, api: int, version: int) -> None:
    raw.send_frame(header(api, version, 44))
    assert raw.is_closed()


def test_a_null_client_id_is_fine(raw: RawClient) -> None:
    raw.send_frame(header(METADATA, 12, 45, client_id=None, tags=b"\0") + b"\1\0\0\0")
    assert struct.unpack_from(">i", raw.read_frame())[0] == 45


def test_unknown_tags_in_header_and_body_are_skipped(raw: RawClient) -> None:
    """KIP-482: a newer client may send tagged fields that this broker has never heard of."""
    tags = b"\2" + b"\x63\3abc" + b"\xe4\x7f\0"
    body = b"\2" + bytes(16) + b"\x0bclt-no-one" + tags + b"\0\0" + tags
    raw.send_frame(header(METADATA, 12, 46, tags=tags) + body)
    frame = raw.read_frame()
    assert struct.unpack_from(">i", frame)[0] == 46
    assert b"clt-no-one" in frame


def test_bytes_after_the_message_disturb_nobody(raw: RawClient, broker: AnyBroker) -> None:
    """Apache Kafka ignores them; to close the connection is fine too, to take them for another request is not."""
    raw.send_frame(header(METADATA, 12, 47, tags=b"\0") + b"\1\0\0\0" + b"trailing")
    try:
        assert struct.unpack_from(">i", raw.read_frame())[0] == 47
        assert raw.is_silent(0.2)
    except ConnectionEndedError:
        with RawClient(broker.bootstrap) as other:
            other.send_frame(header(API_VERSIONS, 0, 48))
            assert api_versions_v0_body(other.read_frame())[0] == NONE


def test_pipelined_requests_are_answered_in_order(raw: RawClient, create_topic: CreateTopic) -> None:
    """A fetch that has to wait holds back the answers behind it, not the other way round."""
    name = create_topic()
    frames, wanted = [], []
    for turn in range(30):
        if turn % 10 == 5:
            request, version = raw.fetch_request(name, 10 * (turn // 10), max_wait_ms=100), 12
        elif turn % 2:
            request, version = MetadataRequest(topics=[], allow_auto_topic_creation=False), 12
        else:
            request, version = raw.produce_request(name, batch()), 12
        frames.append(raw.frame(request, version))
        wanted.append(raw.correlation)
    raw.socket.sendall(b"".join(frames))
    assert [struct.unpack_from(">i", raw.read_frame())[0] for _ in wanted] == wanted


def test_a_frame_may_arrive_byte_by_byte(raw: RawClient) -> None:
    frame = raw.frame(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
    for position in range(len(frame)):
        raw.socket.sendall(frame[position : position + 1])
    assert struct.unpack_from(">i", raw.read_frame())[0] == raw.correlation


# -- Metadata


def metadata_names(raw: RawClient, topics: list[str] | None, version: int) -> set[str]:
    asked = topics and [MetadataRequest.MetadataRequestTopic(name=name, topic_id=NO_TOPIC) for name in topics]
    answer = raw.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), version)
    return {row.name for row in answer.topics}


def test_metadata_v0_takes_an_empty_list_for_all(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    raw.send_frame(header(METADATA, 0, 48) + struct.pack(">i", 0))
    assert name.encode() in raw.read_frame()


@pytest.mark.parametrize("version", [1, 4, 8, 9, 12, 13])
def test_metadata_tells_null_from_empty(raw: RawClient, create_topic: CreateTopic, version: int) -> None:
    name = create_topic()
    assert name in metadata_names(raw, None, version)
    assert metadata_names(raw, [], version) == set()
    assert metadata_names(raw, [name], version) == {name}


@pytest.mark.parametrize("version", range(14))
def test_metadata_describes_a_topic_in_every_version(raw: RawClient, create_topic: CreateTopic, version: int) -> None:
    name = create_topic(partitions=3)
    asked = [MetadataRequest.MetadataRequestTopic(name=name, topic_id=NO_TOPIC)]
    answer = raw.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), version)
    found = answer.topics[0]
    nodes = {node.node_id: node for node in answer.brokers}
    assert (found.error_code, found.name) == (NONE, name)
    assert sorted(part.partition_index for part in found.partitions) == [0, 1, 2]
    for part in found.partitions:
        assert part.error_code == NONE
        assert part.leader_id in nodes
        assert (part.replica_nodes, part.isr_nodes) == ([part.leader_id], [part.leader_id])
        if version >= 7:
            assert part.leader_epoch >= 0
    if version >= 1:
        assert answer.controller_id in nodes
    if version >= 2:
        assert len(answer.cluster_id) == 22
    if version >= 10:
        assert found.topic_id, "kafka-python shows the zero id as None"
    host, port = raw.socket.getpeername()
    assert any(node.port == port for node in nodes.values()), (host, port)


def test_metadata_by_topic_id(raw: RawClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    topic_id = raw.topic_id(name)
    for version in (12, 13):
        asked = [MetadataRequest.MetadataRequestTopic(name=None, topic_id=topic_id)]
        found = raw.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), version).topics[0]
        assert (found.error_code, found.name) == (NONE, name)
        asked = [MetadataRequest.MetadataRequestTopic(name=None, topic_id=uuid.uuid4())]
        found = raw.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), version).topics[0]
        assert found.error_code == UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_topic_id_is_refused_where_the_version_cannot(raw: RawClient, version: int) -> None:
    """Versions 10 and 11 have the field by mistake; a null name is answered as an empty one."""
    for name, topic_id in ((None, uuid.uuid4()), ("clt-any", uuid.uuid4()), (None, NO_TOPIC)):
        asked = [MetadataRequest.MetadataRequestTopic(name=name, topic_id=topic_id)]
        found = raw.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), version).topics[0]
        assert (found.error_code, found.name, found.topic_id or NO_TOPIC) == (
            42,
            name or "",
            topic_id,
        )  # INVALID_REQUEST


def test_metadata_of_an_unknown_topic_does_not_create_it_unless_asked(raw: RawClient, topic: str) -> None:
    assert raw.metadata(topic, create=False).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert raw.metadata(topic, create=False).error_code == UNKNOWN_TOPIC_OR_PARTITION
    first = raw.metadata(topic, create=True).error_code
    assert first in (NONE, 3, 5), "a topic that is not ready yet is a retriable error"
    raw.wait_for_topic(topic, 1)
    assert raw.delete_topics([topic]) == [NONE]


def test_auto_creation_switched_off_at_the_broker(start_broker: StartBroker) -> None:
    own = start_broker(auto_create_topics_enable="false")
    with RawClient(own.bootstrap) as client:
        assert client.metadata("never", create=True).error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert client.metadata("never", create=True).error_code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250])
def test_metadata_refuses_names_that_no_topic_may_have(raw: RawClient, name: str) -> None:
    assert raw.metadata(name, create=True).error_code == INVALID_TOPIC


# -- CreateTopics and DeleteTopics


def create_one(raw: RawClient, name: str, version: int = 7, **fields: object) -> object:
    item = CreateTopicsRequest.CreatableTopic
    given = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [], **fields}
    validate_only = bool(given.pop("validate_only", False))
    request = CreateTopicsRequest(topics=[item(name=name, **given)], timeout_ms=30_000, validate_only=validate_only)
    return raw.ask(request, version).topics[0]


@pytest.mark.parametrize("version", range(2, 8))
def test_a_created_topic_is_in_the_metadata_of_the_same_broker(raw: RawClient, topic: str, version: int) -> None:
    assert create_one(raw, topic, version, num_partitions=2).error_code == NONE
    raw.wait_for_topic(topic, 2)
    assert create_one(raw, topic, version).error_code == TOPIC_ALREADY_EXISTS
    assert raw.delete_topics([topic]) == [NONE]


def test_create_topic_defaults_and_answers_of_version_7(raw: RawClient, topic: str) -> None:
    created = create_one(raw, topic, num_partitions=-1, replication_factor=-1)
    assert (created.error_code, created.num_partitions, created.replication_factor) == (NONE, 1, 1)
    assert created.topic_id, "kafka-python shows the zero id as None"
    assert {row.name: row.value for row in created.configs}["cleanup.policy"] == "delete"
    assert raw.delete_topics([topic]) == [NONE]


def test_validate_only_creates_nothing(raw: RawClient, topic: str) -> None:
    assert create_one(raw, topic, validate_only=True).error_code == NONE
    assert raw.metadata(topic).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_explicit_assignment(raw: RawClient, topic: str) -> None:
    item = CreateTopicsRequest.CreatableTopic
    node = raw.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12).brokers[0].node_id
    replicas = [item.CreatableReplicaAssignment(partition_index=index, broker_ids=[node]) for index in range(2)]
    given = {"num_partitions": -1, "replication_factor": -1, "assignments": replicas}
    assert create_one(raw, topic, **given).error_code == NONE
    raw.wait_for_topic(topic, 2)
    assert raw.delete_topics([topic]) == [NONE]
    nowhere = [item.CreatableReplicaAssignment(partition_index=0, broker_ids=[4711])]
    assert create_one(raw, topic, **{**given, "assignments": nowhere}).error_code == 39  # INVALID_REPLICA_ASSIGNMENT


REFUSED_TOPICS = [
    ("a b", {}, INVALID_TOPIC),
    ("", {}, INVALID_TOPIC),
    ("..", {}, INVALID_TOPIC),
    ("x" * 250, {}, INVALID_TOPIC),
    ("{}", {"num_partitions": 0}, INVALID_PARTITIONS),
    ("{}", {"num_partitions": -2}, INVALID_PARTITIONS),
    ("{}", {"replication_factor": 2}, INVALID_REPLICATION_FACTOR),
    ("{}", {"replication_factor": 0}, INVALID_REPLICATION_FACTOR),
    ("{}", {"configs": [("retention.ms", "soon")]}, INVALID_CONFIG),
    ("{}", {"configs": [("no.such.setting", "1")]}, INVALID_CONFIG),
    ("{}", {"configs": [("segment.bytes", "1000")]}, INVALID_CONFIG),
]


@pytest.mark.parametrize(("name", "fields", "error"), REFUSED_TOPICS)
def test_create_topic_refuses(raw: RawClient, topic: str, name: str, fields: dict, error: int) -> None:
    row = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
    given = {**fields, "configs": [row(name=key, value=value) for key, value in fields.get("configs", [])]}
    refused = create_one(raw, name.format(topic), **given)
    assert refused.error_code == error, refused.error_message
    assert refused.error_message
    assert raw.metadata(name.format(topic)).error_code in (UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC)


def test_names_that_differ_in_dot_and_underscore_collide(raw: RawClient, topic: str) -> None:
    assert create_one(raw, f"{topic}.a").error_code == NONE
    assert create_one(raw, f"{topic}_a").error_code == INVALID_TOPIC
    assert raw.delete_topics([f"{topic}.a"]) == [NONE]


def test_a_topic_named_twice_in_one_request(raw: RawClient, topic: str) -> None:
    item = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    answer = raw.ask(CreateTopicsRequest(topics=[item, item], timeout_ms=30_000, validate_only=False), 7)
    assert {row.error_code for row in answer.topics} == {42}  # INVALID_REQUEST


def test_a_topic_made_again_has_another_id_and_the_old_one_is_unknown(raw: RawClient, topic: str) -> None:
    old = raw.create_topic(topic)
    assert raw.produce(topic, batch(), version=13).error_code == NONE
    assert raw.delete_topics([topic]) == [NONE]
    while raw.metadata(topic).error_code == NONE:
        pass
    new = raw.create_topic(topic)
    assert new != old
    request = raw.produce_request("", batch(), topic_id=old)
    assert raw.ask(request, 13).responses[0].partition_responses[0].error_code == UNKNOWN_TOPIC_ID
    answer = raw.ask(raw.fetch_request("x", 0, topic_id=old, max_wait_ms=0), 16)
    assert answer.responses[0].partitions[0].error_code == UNKNOWN_TOPIC_ID
    assert raw.list_offset(topic, -1).offset == 0
    assert raw.delete_topics([topic]) == [NONE]


def test_delete_of_an_unknown_topic(raw: RawClient, topic: str) -> None:
    assert raw.delete_topics([topic]) == [UNKNOWN_TOPIC_OR_PARTITION]


# -- the other descriptions


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(raw: RawClient, version: int) -> None:
    answer = raw.ask(DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=1), version)
    assert answer.error_code == NONE
    assert len(answer.cluster_id) == 22
    assert answer.controller_id in {node.broker_id for node in answer.brokers}


def test_describe_topic_partitions_pages_with_a_cursor(raw: RawClient, create_topic: CreateTopic) -> None:
    first, second = sorted((create_topic(partitions=3), create_topic(partitions=3)))
    row = DescribeTopicPartitionsRequest.TopicRequest
    request = DescribeTopicPartitionsRequest(
        topics=[row(name=first), row(name=second)], response_partition_limit=4, cursor=None
    )
    answer = raw.ask(request, 0)
    assert [(found.name, len(found.partitions)) for found in answer.topics] == [(first, 3), (second, 1)]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == (second, 1)
    request = DescribeTopicPartitionsRequest(
        topics=[row(name=first), row(name=second)], response_partition_limit=4, cursor=answer.next_cursor
    )
    answer = raw.ask(request, 0)
    assert [(found.name, [part.partition_index for part in found.partitions]) for found in answer.topics] == [
        (second, [1, 2])
    ]
    assert answer.next_cursor is None


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_is_answered(raw: RawClient, broker: AnyBroker, version: int) -> None:
    """Before there are groups the answer is a retriable error, which librdkafka takes as `this broker knows LZ4`."""
    request = FindCoordinatorRequest(key="group", key_type=0, coordinator_keys=["group"])
    answer = raw.ask(request, version)
    errors = [row.error_code for row in answer.coordinators] if version >= 4 else [answer.error_code]
    assert errors
    assert set(errors) <= {NONE, 15}  # COORDINATOR_NOT_AVAILABLE
