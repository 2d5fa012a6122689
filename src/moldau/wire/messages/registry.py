"""The table of APIs: the messages and versions of each."""

from typing import Final, NamedTuple

from moldau.wire.declare import layout_of
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from moldau.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from moldau.wire.messages.alter_organisations import AlterOrganisationsRequest, AlterOrganisationsResponse
from moldau.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from moldau.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from moldau.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from moldau.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from moldau.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from moldau.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from moldau.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from moldau.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from moldau.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from moldau.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from moldau.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from moldau.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from moldau.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from moldau.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from moldau.wire.messages.describe_organisations import DescribeOrganisationsRequest, DescribeOrganisationsResponse
from moldau.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from moldau.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from moldau.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from moldau.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from moldau.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from moldau.wire.messages.fetch import FetchRequest, FetchResponse
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from moldau.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from moldau.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from moldau.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from moldau.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse
from moldau.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from moldau.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from moldau.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from moldau.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from moldau.wire.messages.produce import ProduceRequest, ProduceResponse
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from moldau.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from moldau.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class ApiMessages(NamedTuple):
    """One API: its request and response messages, and their versions."""

    key: int
    name: str
    request: type
    response: type
    lowest: int  # the first version with a codec
    highest: int  # the last version, which is also the last stable one in Kafka
    flexible: int | None  # the first version with compact lengths, tagged fields and newer headers
    advertised: int  # the lowest version in ApiVersions, if it is another
    between_brokers: bool = False  # not listed in ApiVersions
    own: bool = False  # not an API of Kafka: listed in ApiVersions for our own clients only


def _api(
    request: type,
    response: type,
    advertised: int | None = None,
    *,
    between_brokers: bool = False,
    own: bool = False,
) -> ApiMessages:
    layout = layout_of(request)
    lowest, highest = layout.versions
    name = request.__name__.removesuffix("Request")
    return ApiMessages(
        layout.key,
        name,
        request,
        response,
        lowest,
        highest,
        layout.flexible,
        lowest if advertised is None else advertised,
        between_brokers,
        own,
    )


APIS: Final = (
    _api(ProduceRequest, ProduceResponse, advertised=0),  # KAFKA-18659: older librdkafka requires version 0
    _api(FetchRequest, FetchResponse),
    _api(ListOffsetsRequest, ListOffsetsResponse),
    _api(MetadataRequest, MetadataResponse),
    _api(OffsetCommitRequest, OffsetCommitResponse),
    _api(OffsetFetchRequest, OffsetFetchResponse),
    _api(FindCoordinatorRequest, FindCoordinatorResponse),
    _api(JoinGroupRequest, JoinGroupResponse),
    _api(HeartbeatRequest, HeartbeatResponse),
    _api(LeaveGroupRequest, LeaveGroupResponse),
    _api(SyncGroupRequest, SyncGroupResponse),
    _api(DescribeGroupsRequest, DescribeGroupsResponse),
    _api(ListGroupsRequest, ListGroupsResponse),
    _api(SaslHandshakeRequest, SaslHandshakeResponse),
    _api(ApiVersionsRequest, ApiVersionsResponse),
    _api(CreateTopicsRequest, CreateTopicsResponse),
    _api(DeleteTopicsRequest, DeleteTopicsResponse),
    _api(DeleteRecordsRequest, DeleteRecordsResponse),
    _api(InitProducerIdRequest, InitProducerIdResponse),
    _api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    _api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    _api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    _api(EndTxnRequest, EndTxnResponse),
    _api(WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    _api(TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    _api(DescribeAclsRequest, DescribeAclsResponse),
    _api(CreateAclsRequest, CreateAclsResponse),
    _api(DeleteAclsRequest, DeleteAclsResponse),
    _api(DescribeConfigsRequest, DescribeConfigsResponse),
    _api(AlterConfigsRequest, AlterConfigsResponse),
    _api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    _api(DescribeLogDirsRequest, DescribeLogDirsResponse),
    _api(SaslAuthenticateRequest, SaslAuthenticateResponse),
    _api(CreatePartitionsRequest, CreatePartitionsResponse),
    _api(CreateDelegationTokenRequest, CreateDelegationTokenResponse),
    _api(RenewDelegationTokenRequest, RenewDelegationTokenResponse),
    _api(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse),
    _api(DescribeDelegationTokenRequest, DescribeDelegationTokenResponse),
    _api(DeleteGroupsRequest, DeleteGroupsResponse),
    _api(ElectLeadersRequest, ElectLeadersResponse),
    _api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    _api(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    _api(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    _api(OffsetDeleteRequest, OffsetDeleteResponse),
    _api(DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    _api(AlterClientQuotasRequest, AlterClientQuotasResponse),
    _api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse),
    _api(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse),
    _api(AlterPartitionRequest, AlterPartitionResponse, between_brokers=True),
    _api(UpdateFeaturesRequest, UpdateFeaturesResponse),
    _api(EnvelopeRequest, EnvelopeResponse, between_brokers=True),
    _api(DescribeClusterRequest, DescribeClusterResponse),
    _api(DescribeProducersRequest, DescribeProducersResponse),
    _api(BrokerHeartbeatRequest, BrokerHeartbeatResponse, between_brokers=True),
    _api(DescribeTransactionsRequest, DescribeTransactionsResponse),
    _api(ListTransactionsRequest, ListTransactionsResponse),
    _api(AllocateProducerIdsRequest, AllocateProducerIdsResponse, between_brokers=True),
    _api(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    _api(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    _api(ListConfigResourcesRequest, ListConfigResourcesResponse),
    _api(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
    _api(DescribeOrganisationsRequest, DescribeOrganisationsResponse, own=True),
    _api(AlterOrganisationsRequest, AlterOrganisationsResponse, own=True),
)

BY_KEY: Final = {api.key: api for api in APIS}
