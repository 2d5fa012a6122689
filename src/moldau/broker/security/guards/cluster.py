"""Guards of APIs that need a right on the cluster, and of those about configs."""

from collections.abc import Callable
from itertools import chain
from typing import Any, Protocol, TypeVar

from moldau.base.errors import WireError
from moldau.broker.resources import Resource
from moldau.broker.security.gate import Guard, Narrowed, Verdict, Visitor, split
from moldau.security.acls import CLUSTER_NAME, Operation, ResourceType
from moldau.wire.declare import replace
from moldau.wire.messages import alter_configs as whole
from moldau.wire.messages import incremental_alter_configs as incremental
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlterationResult,
)
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from moldau.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from moldau.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from moldau.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from moldau.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from moldau.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

FAILED = WireError.CLUSTER_AUTHORIZATION_FAILED


class OfResource(Protocol):
    """A row of a request about configs."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=OfResource)

# The resources of configs: the type that rights are given on, and the error without one.
CONFIGS = {
    Resource.TOPIC: (ResourceType.TOPIC, WireError.TOPIC_AUTHORIZATION_FAILED),
    Resource.GROUP: (ResourceType.GROUP, WireError.GROUP_AUTHORIZATION_FAILED),
    Resource.BROKER: (ResourceType.CLUSTER, FAILED),
    Resource.BROKER_LOGGER: (ResourceType.CLUSTER, FAILED),
    Resource.CLIENT_METRICS: (ResourceType.CLUSTER, FAILED),
}


def needs(operation: Operation, refuse: Callable[[Any], object]) -> Guard:
    """The guard of an API that needs one right on the cluster; `refuse` makes the response from the request."""

    def guard(visitor: Visitor, request: object) -> Verdict:
        return None if visitor.may_cluster(operation) else refuse(request)

    return guard


def saying(response: Callable[..., object], **others: object) -> Callable[[Any], object]:
    """A response with one error for all, and these other fields."""
    return lambda request: response(error_code=FAILED, **others)


def write_txn_markers(visitor: Visitor, request: WriteTxnMarkersRequest) -> Verdict:
    if visitor.may_cluster(Operation.ALTER, log=False) or visitor.may_cluster(Operation.CLUSTER_ACTION):
        return None
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=tuple(
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=tuple(
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=FAILED)
                            for index in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker in request.markers
        )
    )


def no_quotas(request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=tuple(
            QuotaAlterationResult(error_code=FAILED, error_message=FAILED.doc, entity=each.entity)
            for each in request.entries
        )
    )


def no_description(request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    """As in Kafka, the rows name no user."""
    refused = DescribeUserScramCredentialsResult(user="", error_code=FAILED, error_message=FAILED.doc)
    return DescribeUserScramCredentialsResponse(
        error_code=FAILED, error_message=FAILED.doc, results=(refused,) * len(request.users or ())
    )


def no_credentials(request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    deleted, set_ = (each.name for each in request.deletions), (each.name for each in request.upsertions)
    users = dict.fromkeys(chain(deleted, set_))
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(user=user, error_code=FAILED, error_message=FAILED.doc) for user in users
        )
    )


def no_log_dirs(request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=FAILED)
                    for index in topic.partitions
                ),
            )
            for directory in request.dirs
            for topic in directory.topics
        )
    )


def no_election(request: ElectLeadersRequest) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=FAILED,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=tuple(
                    PartitionResult(partition_id=index, error_code=FAILED, error_message=FAILED.doc)
                    for index in each.partitions
                ),
            )
            for each in request.topic_partitions or ()
        ),
    )


def no_reassignment(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=FAILED,
        error_message=FAILED.doc,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ReassignablePartitionResponse(
                        partition_index=each.partition_index, error_code=FAILED, error_message=FAILED.doc
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def no_creation(request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=FAILED, error_message=FAILED.doc)
    return CreateAclsResponse(results=(refused,) * len(request.creations))


def no_deletion(request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=FAILED, error_message=FAILED.doc)
    return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))


# ── configs ──


def _refusal(visitor: Visitor, operation: Operation, resource: OfResource) -> WireError | None:
    """The error of a resource whose configs may not be seen or changed; one of another type is the handler's."""
    if resource.resource_type not in CONFIGS:
        return None
    kind, error = CONFIGS[Resource(resource.resource_type)]
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
    return None if visitor.may(operation, kind, name) else error


def describe_configs(visitor: Visitor, request: DescribeConfigsRequest) -> Verdict:
    errors = {each: _refusal(visitor, Operation.DESCRIBE_CONFIGS, each) for each in request.resources}
    kept, refused = split(request.resources, lambda each: errors[each] is None)
    rows = tuple(
        DescribeConfigsResult(
            error_code=error,
            error_message=error.doc,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            configs=(),
        )
        for each in refused
        if (error := errors[each]) is not None
    )
    if not rows:
        return None
    if not kept:
        return DescribeConfigsResponse(results=rows)

    def complete(answered: DescribeConfigsResponse) -> DescribeConfigsResponse:
        return replace(answered, results=answered.results + rows)

    return Narrowed(replace(request, resources=kept), complete)


def alter_configs(visitor: Visitor, request: whole.AlterConfigsRequest) -> Verdict:
    return _alter(visitor, request, request.resources, whole.AlterConfigsResponse, whole.AlterConfigsResourceResponse)


def incremental_alter_configs(visitor: Visitor, request: incremental.IncrementalAlterConfigsRequest) -> Verdict:
    response, row = incremental.IncrementalAlterConfigsResponse, incremental.AlterConfigsResourceResponse
    return _alter(visitor, request, request.resources, response, row)


def _alter(
    visitor: Visitor,
    request: object,
    resources: tuple[R, ...],
    response: Callable[..., object],
    row: Callable[..., object],
) -> Verdict:
    errors = {each: _refusal(visitor, Operation.ALTER_CONFIGS, each) for each in resources}
    kept, refused = split(resources, lambda each: errors[each] is None)
    rows = tuple(
        row(
            error_code=error,
            error_message=error.doc,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each in refused
        if (error := errors[each]) is not None
    )
    if not rows:
        return None
    if not kept:
        return response(responses=rows)
    return Narrowed(
        replace(request, resources=kept), lambda answered: replace(answered, responses=answered.responses + rows)
    )
