"""The resources of administrative requests, for the audit: which ones, with what outcome. Values and secrets stay out.

One function for each API takes the request and the response. Names and outcomes are those of the response where it has
them; a request tells what was asked of them.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from moldau.security.acls import Operation, PatternType, Permission, ResourceType
from moldau.security.audit import Resource
from moldau.security.scram import BY_CODE
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
)
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from moldau.wire.messages.alter_organisations import AlterOrganisationsRequest, AlterOrganisationsResponse
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from moldau.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from moldau.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from moldau.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from moldau.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from moldau.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from moldau.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from moldau.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from moldau.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from moldau.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

Resources = list[Resource]
Describe = Callable[[Any, Any], Resources]  # a request and its response

TOPIC: Final = ResourceType.TOPIC.title
GROUP: Final = ResourceType.GROUP.title
USER: Final = ResourceType.USER.title
DELEGATION_TOKEN: Final = ResourceType.DELEGATION_TOKEN.title
PARTITION: Final = "Partition"
CONFIG_TYPES: Final = {2: TOPIC, 4: "Broker", 8: "BrokerLogger", 16: "ClientMetrics", 32: GROUP}


def topics_created(request: CreateTopicsRequest, response: CreateTopicsResponse) -> Resources:
    return [Resource(TOPIC, each.name, each.error_code) for each in response.topics]


def topics_deleted(request: DeleteTopicsRequest, response: DeleteTopicsResponse) -> Resources:
    return [Resource(TOPIC, each.name or str(each.topic_id), each.error_code) for each in response.responses]


def partitions_created(request: CreatePartitionsRequest, response: CreatePartitionsResponse) -> Resources:
    counts = {each.name: f"{each.count} partitions" for each in request.topics}
    return [Resource(TOPIC, each.name, each.error_code, counts.get(each.name, "")) for each in response.results]


def records_deleted(request: DeleteRecordsRequest, response: DeleteRecordsResponse) -> Resources:
    return [
        Resource(PARTITION, f"{topic.name}-{each.partition_index}", each.error_code)
        for topic in response.topics
        for each in topic.partitions
    ]


def directories_altered(request: AlterReplicaLogDirsRequest, response: AlterReplicaLogDirsResponse) -> Resources:
    return [
        Resource(PARTITION, f"{topic.topic_name}-{each.partition_index}", each.error_code)
        for topic in response.results
        for each in topic.partitions
    ]


def leaders_elected(request: ElectLeadersRequest, response: ElectLeadersResponse) -> Resources:
    return [
        Resource(PARTITION, f"{topic.topic}-{each.partition_id}", each.error_code)
        for topic in response.replica_election_results
        for each in topic.partition_result
    ]


def reassigned(request: AlterPartitionReassignmentsRequest, response: AlterPartitionReassignmentsResponse) -> Resources:
    return [
        Resource(PARTITION, f"{topic.name}-{each.partition_index}", each.error_code)
        for topic in response.responses
        for each in topic.partitions
    ]


def organisations_altered(request: AlterOrganisationsRequest, response: AlterOrganisationsResponse) -> Resources:
    deleted = {each.name for each in request.alterations if each.definition is None}
    return [
        Resource("Organisation", each.name, each.error_code, "delete" if each.name in deleted else "set")
        for each in response.results
    ]


def groups_deleted(request: DeleteGroupsRequest, response: DeleteGroupsResponse) -> Resources:
    return [Resource(GROUP, each.group_id, each.error_code) for each in response.results]


def offsets_deleted(request: OffsetDeleteRequest, response: OffsetDeleteResponse) -> Resources:
    partitions = [
        Resource(PARTITION, f"{topic.name}-{each.partition_index}", each.error_code)
        for topic in response.topics
        for each in topic.partitions
    ]
    return [Resource(GROUP, request.group_id, response.error_code), *partitions]


def configs_altered(
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse,
) -> Resources:
    """With the names of the settings."""
    names = {
        (each.resource_type, each.resource_name): ", ".join(config.name for config in each.configs)
        for each in request.resources
    }
    return [
        Resource(
            CONFIG_TYPES.get(each.resource_type, "Unknown"),
            each.resource_name,
            each.error_code,
            names.get((each.resource_type, each.resource_name), ""),
        )
        for each in response.responses
    ]


def acls_created(request: CreateAclsRequest, response: CreateAclsResponse) -> Resources:
    """The response has no names, and is in the order of the request."""
    return [
        _acl(acl, acl.resource_pattern_type, result.error_code)
        for acl, result in zip(request.creations, response.results, strict=False)
    ]


def acls_deleted(request: DeleteAclsRequest, response: DeleteAclsResponse) -> Resources:
    """Those that matched; a filter that was refused, or that matched none, is told itself."""
    found: Resources = []
    for wanted, result in zip(request.filters, response.filter_results, strict=False):
        found += [_acl(each, each.pattern_type, each.error_code) for each in result.matching_acls]
        if not result.matching_acls:
            found.append(_filter(wanted, result.error_code))
    return found


def _acl(acl: AclCreation | DeleteAclsMatchingAcl, pattern: int, error: int) -> Resource:
    kind = _title(ResourceType, acl.resource_type)
    permission, operation = _title(Permission, acl.permission_type), _title(Operation, acl.operation)
    form = f"{_title(PatternType, pattern)}, {permission} {acl.principal} {operation} from {acl.host}"
    return Resource(kind, acl.resource_name, error, form)


def _filter(wanted: DeleteAclsFilter, error: int) -> Resource:
    kind, pattern = _title(ResourceType, wanted.resource_type_filter), _title(PatternType, wanted.pattern_type_filter)
    of = f", {wanted.principal_filter}" if wanted.principal_filter else ""
    return Resource(kind, wanted.resource_name_filter or "", error, f"filter: {pattern}{of}")


def _title(of: type[ResourceType] | type[PatternType] | type[Permission] | type[Operation], number: int) -> str:
    try:
        return of(number).title
    except ValueError:
        return "Unknown"


def quotas_altered(request: AlterClientQuotasRequest, response: AlterClientQuotasResponse) -> Resources:
    keys = {_entity(each.entity): ", ".join(op.key for op in each.ops) for each in request.entries}
    return [
        Resource("ClientQuota", _entity(each.entity), each.error_code, keys.get(_entity(each.entity), ""))
        for each in response.entries
    ]


def _entity(parts: Iterable[AlteredEntity]) -> str:
    named = (f"{each.entity_type}={'<default>' if each.entity_name is None else each.entity_name}" for each in parts)
    return ", ".join(sorted(named))


def credentials_altered(
    request: AlterUserScramCredentialsRequest, response: AlterUserScramCredentialsResponse
) -> Resources:
    asked: dict[str, list[str]] = {}
    for verb, rows in (("set", request.upsertions), ("delete", request.deletions)):
        for row in rows:
            mechanism = BY_CODE.get(row.mechanism)
            asked.setdefault(row.name, []).append(f"{verb} {mechanism.name if mechanism else 'unknown mechanism'}")
    return [
        Resource(USER, each.user, each.error_code, ", ".join(asked.get(each.user, ()))) for each in response.results
    ]


def token_created(request: CreateDelegationTokenRequest, response: CreateDelegationTokenResponse) -> Resources:
    """The id is public; the HMAC is the password."""
    owner = f"owner {response.principal_type}:{response.principal_name}" if response.principal_name else ""
    return [Resource(DELEGATION_TOKEN, response.token_id, response.error_code, owner)]


def token_changed(request: object, response: object) -> Resources:
    """A request names its token by the HMAC, which is the password."""
    return []


def features_updated(request: UpdateFeaturesRequest, response: UpdateFeaturesResponse) -> Resources:
    errors = {each.feature: each.error_code for each in response.results}
    return [
        Resource(
            "Feature", each.feature, errors.get(each.feature, response.error_code), f"level {each.max_version_level}"
        )
        for each in request.feature_updates
    ]
