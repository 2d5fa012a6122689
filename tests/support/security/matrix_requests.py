"""The requests of the ACL matrix: one or more of each API that clients may send."""

from collections.abc import Iterator
from uuid import UUID

from moldau.security.acls import AclBinding, AclEntry, Operation, Permission, ResourcePattern, ResourceType
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.wire.messages.alter_configs import AlterConfigsRequest
from moldau.wire.messages.alter_configs import AlterConfigsResource as WholeResource
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.wire.messages.describe_acls import DescribeAclsRequest
from moldau.wire.messages.describe_cluster import DescribeClusterRequest
from moldau.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.wire.messages.describe_groups import DescribeGroupsRequest
from moldau.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from moldau.wire.messages.describe_producers import DescribeProducersRequest
from moldau.wire.messages.describe_producers import TopicRequest as ProducersTopic
from moldau.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from moldau.wire.messages.describe_transactions import DescribeTransactionsRequest
from moldau.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest
from moldau.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest
from moldau.wire.messages.list_config_resources import ListConfigResourcesRequest
from moldau.wire.messages.list_groups import ListGroupsRequest
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from moldau.wire.messages.list_transactions import ListTransactionsRequest
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from moldau.wire.messages.offset_delete import OffsetDeletePartition, OffsetDeleteRequest, OffsetDeleteTopic
from moldau.wire.messages.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from moldau.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.messages.sync_group import SyncGroupRequest
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from moldau.wire.messages.update_features import UpdateFeaturesRequest
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from support.log.batches import batch
from support.security.matrix_users import UNKNOWN, requests_about_users

TOPIC, GROUP, ID, GONE = "orders", "readers", "ledger", "gone"


def requests(topic_id: UUID, hmac: bytes = UNKNOWN) -> Iterator[tuple[str, int, object]]:
    """A name, the version and the request; an allowed one changes nothing that the others see.

    `hmac` is that of another user's delegation token.
    """
    produced = (PartitionProduceData(index=0, records=batch()),)
    fetched = (FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000),)
    committed = (OffsetCommitPartition(partition_index=0, committed_offset=1),)
    in_txn = (TxnOffsetCommitPartition(partition_index=0, committed_offset=1),)
    yield (
        "Produce",
        9,
        ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=(
                TopicProduceData(name=TOPIC, partition_data=produced),
                TopicProduceData(name=GONE, partition_data=produced),
            ),
        ),
    )
    yield (
        "Produce by id",
        13,
        ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=(TopicProduceData(topic_id=topic_id, partition_data=produced),)
        ),
    )
    yield "Fetch", 12, FetchRequest(max_wait_ms=0, min_bytes=0, topics=(FetchTopic(topic=TOPIC, partitions=fetched),))
    yield (
        "Fetch by id",
        17,
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=(
                FetchTopic(topic_id=topic_id, partitions=fetched),
                FetchTopic(topic_id=UUID(int=7), partitions=fetched),
            ),
        ),
    )
    yield (
        "ListOffsets",
        9,
        ListOffsetsRequest(
            replica_id=-1,
            topics=tuple(
                ListOffsetsTopic(name=name, partitions=(ListOffsetsPartition(partition_index=0, timestamp=-1),))
                for name in (TOPIC, GONE)
            ),
        ),
    )
    yield (
        "Metadata",
        12,
        MetadataRequest(
            topics=(MetadataRequestTopic(name=TOPIC), MetadataRequestTopic(name=GONE)),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        ),
    )
    yield (
        "Metadata by id",
        12,
        MetadataRequest(topics=(MetadataRequestTopic(name=None, topic_id=topic_id),), allow_auto_topic_creation=False),
    )
    yield "Metadata of all", 12, MetadataRequest(topics=None)
    yield "Metadata, creating", 12, MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),))
    yield "Metadata, cluster", 10, MetadataRequest(topics=(), include_cluster_authorized_operations=True)
    yield (
        "OffsetCommit",
        8,
        OffsetCommitRequest(
            group_id=GROUP, topics=tuple(OffsetCommitTopic(name=name, partitions=committed) for name in (TOPIC, GONE))
        ),
    )
    yield (
        "OffsetCommit by id",
        10,
        OffsetCommitRequest(group_id=GROUP, topics=(OffsetCommitTopic(topic_id=topic_id, partitions=committed),)),
    )
    yield (
        "OffsetFetch",
        8,
        OffsetFetchRequest(
            groups=(OffsetFetchGroup(group_id=GROUP, topics=(OffsetFetchTopic(name=TOPIC, partition_indexes=(0,)),)),)
        ),
    )
    yield "OffsetFetch of all", 8, OffsetFetchRequest(groups=(OffsetFetchGroup(group_id=GROUP, topics=None),))
    yield (
        "OffsetFetch by id",
        10,
        OffsetFetchRequest(
            groups=(
                OffsetFetchGroup(group_id=GROUP, topics=(OffsetFetchTopic(topic_id=topic_id, partition_indexes=(0,)),)),
            )
        ),
    )
    yield (
        "OffsetFetch of one",
        7,
        OffsetFetchRequest(
            groups=(OffsetFetchGroup(group_id=GROUP, topics=(OffsetFetchTopic(name=TOPIC, partition_indexes=(0,)),)),)
        ),
    )
    yield "FindCoordinator of groups", 4, FindCoordinatorRequest(coordinator_keys=(GROUP, GONE))
    yield "FindCoordinator of one", 3, FindCoordinatorRequest(coordinator_keys=(GROUP,))
    yield "FindCoordinator of ids", 4, FindCoordinatorRequest(key_type=1, coordinator_keys=(ID,))
    yield (
        "JoinGroup",
        9,
        JoinGroupRequest(
            group_id="classic",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(JoinGroupProtocol(name="range", metadata=b""),),
        ),
    )
    yield "Heartbeat", 4, HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="nobody")
    yield "LeaveGroup", 5, LeaveGroupRequest(group_id=GROUP, members=(LeaveGroupMember(member_id="nobody"),))
    yield (
        "SyncGroup",
        5,
        SyncGroupRequest(
            group_id=GROUP, generation_id=1, member_id="nobody", protocol_type="consumer", protocol_name="range"
        ),
    )
    yield "DescribeGroups", 5, DescribeGroupsRequest(groups=(GROUP, GONE), include_authorized_operations=True)
    yield "ListGroups", 5, ListGroupsRequest()
    yield (
        "CreateTopics",
        7,
        CreateTopicsRequest(
            topics=tuple(
                CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
                for name in ("new", TOPIC)
            ),
            validate_only=True,
        ),
    )
    yield (
        "DeleteTopics",
        6,
        DeleteTopicsRequest(
            topics=(DeleteTopicState(name=GONE), DeleteTopicState(topic_id=UUID(int=7))), timeout_ms=1000
        ),
    )
    yield (
        "DeleteRecords",
        2,
        DeleteRecordsRequest(
            timeout_ms=1000,
            topics=tuple(
                DeleteRecordsTopic(name=name, partitions=(DeleteRecordsPartition(partition_index=0, offset=0),))
                for name in (TOPIC, GONE)
            ),
        ),
    )
    yield "InitProducerId", 5, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    yield (
        "InitProducerId of a transactional id",
        5,
        InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000),
    )
    yield (
        "OffsetForLeaderEpoch",
        4,
        OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=tuple(
                OffsetForLeaderTopic(topic=name, partitions=(OffsetForLeaderPartition(partition=0, leader_epoch=0),))
                for name in (TOPIC, GONE)
            ),
        ),
    )
    for version in (3, 5):
        yield (
            f"AddPartitionsToTxn {version}",
            version,
            AddPartitionsToTxnRequest(
                transactions=(
                    AddPartitionsToTxnTransaction(
                        transactional_id=ID,
                        producer_id=9999,
                        producer_epoch=0,
                        topics=tuple(AddPartitionsToTxnTopic(name=name, partitions=(0,)) for name in (TOPIC, GONE)),
                    ),
                )
            ),
        )
    yield (
        "AddOffsetsToTxn",
        3,
        AddOffsetsToTxnRequest(transactional_id=ID, producer_id=9999, producer_epoch=0, group_id=GROUP),
    )
    yield "EndTxn", 3, EndTxnRequest(transactional_id=ID, producer_id=9999, producer_epoch=0, committed=True)
    yield (
        "WriteTxnMarkers",
        1,
        WriteTxnMarkersRequest(
            markers=(
                WritableTxnMarker(
                    producer_id=9999,
                    producer_epoch=0,
                    transaction_result=False,
                    topics=(WritableTxnMarkerTopic(name=GONE, partition_indexes=(0,)),),
                    coordinator_epoch=0,
                ),
            )
        ),
    )
    yield (
        "TxnOffsetCommit",
        3,
        TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=GROUP,
            producer_id=9999,
            producer_epoch=0,
            topics=tuple(TxnOffsetCommitTopic(name=name, partitions=in_txn) for name in (GONE,)),
        ),
    )
    yield (
        "DescribeAcls",
        3,
        DescribeAclsRequest(
            resource_type_filter=6,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
    )
    yield (
        "CreateAcls",
        3,
        CreateAclsRequest(
            creations=(
                creation(
                    AclBinding(
                        ResourcePattern(ResourceType.TOPIC, "unused"),
                        AclEntry("User:nobody", "*", Operation.READ, Permission.ALLOW),
                    )
                ),
            )
        ),
    )
    yield "DeleteAcls", 3, DeleteAclsRequest(filters=(the_filter("User:nobody"),))
    yield (
        "DescribeConfigs",
        4,
        DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=("segment.bytes",))
                for kind, name in ((2, TOPIC), (2, GONE), (4, "1"), (32, GROUP))
            )
        ),
    )
    yield (
        "AlterConfigs",
        2,
        AlterConfigsRequest(
            resources=tuple(
                WholeResource(resource_type=kind, resource_name=name, configs=())
                for kind, name in ((2, TOPIC), (2, GONE), (4, "1"))
            ),
            validate_only=True,
        ),
    )
    yield (
        "IncrementalAlterConfigs",
        1,
        IncrementalAlterConfigsRequest(
            resources=tuple(
                AlterConfigsResource(resource_type=kind, resource_name=name, configs=())
                for kind, name in ((2, TOPIC), (2, GONE), (4, "1"), (32, GROUP))
            ),
            validate_only=True,
        ),
    )
    yield (
        "AlterReplicaLogDirs",
        2,
        AlterReplicaLogDirsRequest(
            dirs=(AlterReplicaLogDir(path="/nowhere", topics=(AlterReplicaLogDirTopic(name=TOPIC, partitions=(0,)),)),)
        ),
    )
    yield "DescribeLogDirs", 4, DescribeLogDirsRequest(topics=(DescribableLogDirTopic(topic=TOPIC, partitions=(0,)),))
    yield (
        "CreatePartitions",
        3,
        CreatePartitionsRequest(
            topics=tuple(CreatePartitionsTopic(name=name, count=2, assignments=None) for name in (TOPIC, GONE)),
            timeout_ms=1000,
            validate_only=True,
        ),
    )
    yield "DeleteGroups", 2, DeleteGroupsRequest(groups_names=(GONE,))
    yield "ElectLeaders", 2, ElectLeadersRequest(topic_partitions=(TopicPartitions(topic=TOPIC, partitions=(0,)),))
    yield (
        "AlterPartitionReassignments",
        0,
        AlterPartitionReassignmentsRequest(
            topics=(ReassignableTopic(name=TOPIC, partitions=(ReassignablePartition(partition_index=0),)),)
        ),
    )
    yield "ListPartitionReassignments", 0, ListPartitionReassignmentsRequest()
    yield (
        "OffsetDelete",
        0,
        OffsetDeleteRequest(
            group_id=GROUP,
            topics=(OffsetDeleteTopic(name=GONE, partitions=(OffsetDeletePartition(partition_index=0),)),),
        ),
    )
    yield "UpdateFeatures", 2, UpdateFeaturesRequest(feature_updates=(), validate_only=True)
    yield "DescribeCluster", 1, DescribeClusterRequest(include_cluster_authorized_operations=True)
    yield (
        "DescribeProducers",
        0,
        DescribeProducersRequest(
            topics=tuple(ProducersTopic(name=name, partition_indexes=(0,)) for name in (TOPIC, GONE))
        ),
    )
    yield "DescribeTransactions", 0, DescribeTransactionsRequest(transactional_ids=(ID, GONE))
    yield "ListTransactions", 1, ListTransactionsRequest()
    yield (
        "ConsumerGroupHeartbeat",
        1,
        ConsumerGroupHeartbeatRequest(
            group_id="modern",
            member_id="nobody",
            member_epoch=5,
            subscribed_topic_names=(TOPIC,),
            rebalance_timeout_ms=1000,
            topic_partitions=(),
        ),
    )
    yield (
        "ConsumerGroupDescribe",
        1,
        ConsumerGroupDescribeRequest(group_ids=(GONE,), include_authorized_operations=True),
    )
    yield "ListConfigResources", 1, ListConfigResourcesRequest(resource_types=(4,))
    yield (
        "DescribeTopicPartitions",
        0,
        DescribeTopicPartitionsRequest(topics=(TopicRequest(name=TOPIC), TopicRequest(name=GONE))),
    )
    yield "DescribeTopicPartitions of all", 0, DescribeTopicPartitionsRequest(topics=())
    yield from requests_about_users(hmac)


def creation(acl: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=acl.pattern.resource,
        resource_name=acl.pattern.name,
        resource_pattern_type=acl.pattern.pattern,
        principal=acl.entry.principal,
        host=acl.entry.host,
        operation=acl.entry.operation,
        permission_type=acl.entry.permission,
    )


def the_filter(principal: str) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=principal,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
