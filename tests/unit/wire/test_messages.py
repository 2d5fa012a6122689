"""Messages whose versions differ in shape or meaning, and the table of APIs."""

import pytest

from moldau.wire.codec import Unencodable, decode, encode
from moldau.wire.declare import replace
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from moldau.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.leave_group import (
    LeaveGroupMember,
    LeaveGroupMemberResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResponse,
)
from moldau.wire.messages.registry import APIS, BY_KEY
from moldau.wire.messages.update_features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    FeatureUpdateResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from support.wire.values import sample

NO_ID = "00000000-0000-0000-0000-000000000000"


def test_delete_topics_by_name_is_one_form() -> None:
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name="a"), DeleteTopicState(name="b")), timeout_ms=9)
    assert all(decode(DeleteTopicsRequest, version, encode(request, version)) == request for version in range(1, 7))


def test_delete_topics_by_id_needs_version_6() -> None:
    request = DeleteTopicsRequest(
        topics=(DeleteTopicState(topic_id=sample(FetchRequest, 13).topics[0].topic_id),), timeout_ms=9
    )
    assert decode(DeleteTopicsRequest, 6, encode(request, 6)) == request
    with pytest.raises(Unencodable, match="id"):
        encode(request, 5)


def test_find_coordinator_is_about_lists() -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=("group",))
    assert all(decode(FindCoordinatorRequest, version, encode(request, version)) == request for version in range(1, 7))
    with pytest.raises(Unencodable, match="key_type"):
        encode(request, 0)
    with pytest.raises(Unencodable, match="exactly one key"):
        encode(FindCoordinatorRequest(coordinator_keys=("a", "b")), 3)


def test_find_coordinator_answers_without_the_key_before_version_4() -> None:
    found = Coordinator(key="group", node_id=1, host="h", port=9092, error_code=0, error_message=None)
    response = FindCoordinatorResponse(coordinators=(found,))
    for version in (1, 2, 3):
        (only,) = decode(FindCoordinatorResponse, version, encode(response, version)).coordinators
        assert (only.key, only.node_id, only.host, only.port) == ("", 1, "h", 9092)
    with pytest.raises(Unencodable, match="exactly one coordinator"):
        encode(FindCoordinatorResponse(coordinators=()), 3)


def test_one_member_leaves_before_version_3() -> None:
    request = LeaveGroupRequest(group_id="g", members=(LeaveGroupMember(member_id="m"),))
    assert all(decode(LeaveGroupRequest, version, encode(request, version)) == request for version in range(6))
    for members in ((), request.members * 2, (LeaveGroupMember(group_instance_id="static"),)):
        with pytest.raises(Unencodable, match="exactly one member"):
            encode(LeaveGroupRequest(group_id="g", members=members), 2)


@pytest.mark.parametrize(("of_group", "of_member", "told"), [(0, 0, 0), (0, 25, 25), (16, 0, 16)])
def test_a_leaving_member_hears_one_error_before_version_3(of_group: int, of_member: int, told: int) -> None:
    member = LeaveGroupMemberResponse(member_id="m", error_code=of_member)
    response = LeaveGroupResponse(error_code=of_group, members=(member,))
    for version in range(3):
        assert decode(LeaveGroupResponse, version, encode(response, version)).error_code == told
    assert decode(LeaveGroupResponse, 3, encode(response, 3)) == response
    with pytest.raises(Unencodable, match="one member"):
        encode(LeaveGroupResponse(members=(member, member)), 2)


def test_offsets_of_one_group_are_asked_for_before_version_8() -> None:
    topic = OffsetFetchTopic(name="t", partition_indexes=(0, 1))
    request = OffsetFetchRequest(groups=(OffsetFetchGroup(group_id="g", topics=(topic,)),))
    assert all(decode(OffsetFetchRequest, version, encode(request, version)) == request for version in range(1, 10))
    everything = OffsetFetchRequest(groups=(OffsetFetchGroup(group_id="g"),))
    assert all(
        decode(OffsetFetchRequest, version, encode(everything, version)) == everything for version in range(2, 11)
    )
    with pytest.raises(Unencodable, match="null"):
        encode(everything, 1)
    with pytest.raises(Unencodable, match="exactly one group"):
        encode(OffsetFetchRequest(groups=request.groups * 2), 7)


def test_offsets_of_one_group_are_told_without_its_id_before_version_8() -> None:
    partition = OffsetFetchPartitionResponse(partition_index=1, committed_offset=5)
    topic = OffsetFetchTopicResponse(name="t", partitions=(partition,))
    response = OffsetFetchResponse(groups=(OffsetFetchGroupResponse(group_id="g", topics=(topic,)),))
    for version in range(1, 8):
        (only,) = decode(OffsetFetchResponse, version, encode(response, version)).groups
        assert (only.group_id, only.topics) == ("", (topic,))
    with pytest.raises(Unencodable, match="exactly one group"):
        encode(OffsetFetchResponse(groups=()), 7)


def test_one_transaction_gets_partitions_before_version_4() -> None:
    topic = AddPartitionsToTxnTopic(name="t", partitions=(0, 1))
    added = AddPartitionsToTxnTransaction(transactional_id="x", producer_id=1, producer_epoch=2, topics=(topic,))
    request = AddPartitionsToTxnRequest(transactions=(added,))
    assert all(decode(AddPartitionsToTxnRequest, version, encode(request, version)) == request for version in range(6))
    for transactions in ((), (added, added), (replace(added, verify_only=True),)):
        with pytest.raises(Unencodable, match="exactly one transaction"):
            encode(AddPartitionsToTxnRequest(transactions=transactions), 3)


def test_one_transaction_hears_of_partitions_without_its_id_before_version_4() -> None:
    result = AddPartitionsToTxnResult(transactional_id="x", topic_results=())
    response = AddPartitionsToTxnResponse(results_by_transaction=(result,))
    for version in range(4):
        (only,) = decode(AddPartitionsToTxnResponse, version, encode(response, version)).results_by_transaction
        assert only == replace(result, transactional_id="")
    with pytest.raises(Unencodable, match="exactly one transaction"):
        encode(AddPartitionsToTxnResponse(error_code=31), 3)


@pytest.mark.parametrize("way", [UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_a_feature_goes_down_in_two_ways_from_version_1_on(way: int) -> None:
    update = FeatureUpdate(feature="f", max_version_level=1, upgrade_type=way)
    request = UpdateFeaturesRequest(feature_updates=(update,))
    assert all(decode(UpdateFeaturesRequest, version, encode(request, version)) == request for version in (1, 2))
    if way == UNSAFE_DOWNGRADE:
        with pytest.raises(Unencodable, match="unsafely"):
            encode(request, 0)
    else:
        assert decode(UpdateFeaturesRequest, 0, encode(request, 0)) == request
    with pytest.raises(Unencodable, match="only try"):
        encode(replace(request, validate_only=True), 0)


def test_features_are_answered_together_from_version_2_on() -> None:
    response = UpdateFeaturesResponse(results=(FeatureUpdateResult(feature="f"),))
    assert decode(UpdateFeaturesResponse, 1, encode(response, 1)) == response
    assert decode(UpdateFeaturesResponse, 2, encode(response, 2)) == UpdateFeaturesResponse()


def test_metadata_version_0_says_all_by_an_empty_list() -> None:
    everything = MetadataRequest(topics=None)
    assert encode(everything, 0) == bytes(4)
    assert decode(MetadataRequest, 0, bytes(4)) == everything
    assert decode(MetadataRequest, 1, bytes(4)) == MetadataRequest(topics=())
    with pytest.raises(Unencodable, match="no topic"):
        encode(MetadataRequest(topics=()), 0)
    with pytest.raises(Unencodable, match="nothing else"):
        encode(MetadataRequest(topics=None, allow_auto_topic_creation=False), 0)


def test_metadata_before_version_4_allows_auto_creation() -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name="a"),))
    for version in range(4):
        assert decode(MetadataRequest, version, encode(request, version)).allow_auto_topic_creation


def test_authorized_operations_are_unknown_unless_told() -> None:
    assert decode(MetadataResponse, 1, encode(sample(MetadataResponse, 1), 1)).cluster_authorized_operations == -(2**31)


def test_fetch_has_its_replica_in_one_place() -> None:
    topic = FetchTopic(partitions=(FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=1),))
    request = FetchRequest(replica_state=ReplicaState(replica_id=3), max_wait_ms=1, min_bytes=1, topics=(topic,))
    for version in range(4, 19):
        found = decode(FetchRequest, version, encode(request, version))
        assert found.replica_state == ReplicaState(replica_id=3)
        assert found.topics[0].partitions[0].high_watermark == 2**63 - 1
    with pytest.raises(Unencodable, match="replica epoch"):
        encode(FetchRequest(replica_state=ReplicaState(replica_epoch=1), max_wait_ms=1, min_bytes=1, topics=()), 14)


@pytest.mark.parametrize(("version", "name"), [(12, "dráha 1"), (13, "")])
def test_fetch_topics_have_a_name_or_an_id(version: int, name: str) -> None:
    (topic, _) = decode(FetchRequest, version, encode(sample(FetchRequest, version), version)).topics
    assert topic.topic == name
    assert (str(topic.topic_id) == NO_ID) == (version == 12)


def test_the_table_has_what_kafka_4_3_serves() -> None:
    served = {api.name: (api.key, api.lowest, api.highest) for api in APIS}
    assert served == {
        "Produce": (0, 3, 13),
        "Fetch": (1, 4, 18),
        "ListOffsets": (2, 1, 11),
        "Metadata": (3, 0, 13),
        "OffsetCommit": (8, 2, 10),
        "OffsetFetch": (9, 1, 10),
        "FindCoordinator": (10, 0, 6),
        "JoinGroup": (11, 0, 9),
        "Heartbeat": (12, 0, 4),
        "LeaveGroup": (13, 0, 5),
        "SyncGroup": (14, 0, 5),
        "DescribeGroups": (15, 0, 6),
        "ListGroups": (16, 0, 5),
        "SaslHandshake": (17, 0, 1),
        "ApiVersions": (18, 0, 4),
        "CreateTopics": (19, 2, 7),
        "DeleteTopics": (20, 1, 6),
        "DeleteRecords": (21, 0, 2),
        "InitProducerId": (22, 0, 5),
        "OffsetForLeaderEpoch": (23, 2, 4),
        "AddPartitionsToTxn": (24, 0, 5),
        "AddOffsetsToTxn": (25, 0, 4),
        "EndTxn": (26, 0, 5),
        "WriteTxnMarkers": (27, 1, 2),
        "TxnOffsetCommit": (28, 0, 5),
        "DescribeAcls": (29, 1, 3),
        "CreateAcls": (30, 1, 3),
        "DeleteAcls": (31, 1, 3),
        "DescribeConfigs": (32, 1, 4),
        "AlterConfigs": (33, 0, 2),
        "AlterReplicaLogDirs": (34, 1, 2),
        "DescribeLogDirs": (35, 1, 5),
        "SaslAuthenticate": (36, 0, 2),
        "CreatePartitions": (37, 0, 3),
        "CreateDelegationToken": (38, 1, 3),
        "RenewDelegationToken": (39, 1, 2),
        "ExpireDelegationToken": (40, 1, 2),
        "DescribeDelegationToken": (41, 1, 3),
        "DeleteGroups": (42, 0, 2),
        "ElectLeaders": (43, 0, 2),
        "IncrementalAlterConfigs": (44, 0, 1),
        "AlterPartitionReassignments": (45, 0, 1),
        "ListPartitionReassignments": (46, 0, 0),
        "OffsetDelete": (47, 0, 0),
        "DescribeClientQuotas": (48, 0, 1),
        "AlterClientQuotas": (49, 0, 1),
        "DescribeUserScramCredentials": (50, 0, 0),
        "AlterUserScramCredentials": (51, 0, 0),
        "AlterPartition": (56, 2, 3),
        "UpdateFeatures": (57, 0, 2),
        "Envelope": (58, 0, 0),
        "DescribeCluster": (60, 0, 2),
        "DescribeProducers": (61, 0, 0),
        "BrokerHeartbeat": (63, 0, 1),
        "DescribeTransactions": (65, 0, 0),
        "ListTransactions": (66, 0, 2),
        "AllocateProducerIds": (67, 0, 0),
        "ConsumerGroupHeartbeat": (68, 0, 1),
        "ConsumerGroupDescribe": (69, 0, 1),
        "ListConfigResources": (74, 0, 1),
        "DescribeTopicPartitions": (75, 0, 0),
        "DescribeOrganisations": (20_000, 0, 0),
        "AlterOrganisations": (20_001, 0, 0),
    }
    assert [api.key for api in APIS] == sorted(BY_KEY)
    assert {api.name for api in APIS if api.advertised != api.lowest} == {"Produce"}
    assert BY_KEY[0].advertised == 0
