"""The resources of administrative requests: which ones, and never a secret or a value."""

from typing import Any

import pytest

from moldau.broker.table import APIS
from moldau.security.acls import Operation
from moldau.security.audit import Resource
from moldau.security.audit_actions import (
    acls_created,
    acls_deleted,
    configs_altered,
    credentials_altered,
    features_updated,
    offsets_deleted,
    organisations_altered,
    partitions_created,
    quotas_altered,
    token_changed,
    token_created,
)
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
    QuotaAlteration,
    QuotaAlterationResult,
    QuotaOp,
)
from moldau.wire.messages.alter_organisations import (
    AlterOrganisationsRequest,
    AlterOrganisationsResponse,
    OrganisationAlteration,
    OrganisationAlterationResult,
)
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from moldau.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from moldau.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.messages.offset_delete import (
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResponse,
)
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from moldau.wire.messages.update_features import FeatureUpdate, UpdateFeaturesRequest, UpdateFeaturesResponse

CHANGES = {Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CREATE, Operation.CREATE_TOKENS, Operation.DELETE}
NOT_ADMINISTRATIVE = {
    "Metadata": "it may create a topic that a client uses, on behalf of the broker",
    "WriteTxnMarkers": "brokers send it to each other with every transaction",
}


@pytest.mark.parametrize("api", APIS, ids=lambda api: str(api.messages.name))
def test_every_api_that_changes_the_cluster_is_audited(api: Any) -> None:
    changes = api.forwarded or any(need.operation in CHANGES for need in api.needs)
    assert (api.audited is not None) == (changes and api.messages.name not in NOT_ADMINISTRATIVE)


def test_settings_are_named_without_their_values() -> None:
    asked = AlterConfigsResource(
        resource_type=4,
        resource_name="1",
        configs=(
            AlterableConfig(name="ssl.key.password", config_operation=0, value="top secret"),
            AlterableConfig(name="log.retention.ms", config_operation=1, value=None),
        ),
    )
    done = AlterConfigsResourceResponse(error_code=40, error_message="top secret", resource_type=4, resource_name="1")
    found = configs_altered(
        IncrementalAlterConfigsRequest(resources=(asked,), validate_only=False),
        IncrementalAlterConfigsResponse(responses=(done,)),
    )
    assert found == [Resource("Broker", "1", 40, "ssl.key.password, log.retention.ms")]


def test_users_are_named_with_the_mechanism() -> None:
    secret = b"top secret"
    asked = AlterUserScramCredentialsRequest(
        deletions=(ScramCredentialDeletion(name="bob", mechanism=1), ScramCredentialDeletion(name="eve", mechanism=9)),
        upsertions=(
            ScramCredentialUpsertion(name="bob", mechanism=2, iterations=8192, salt=secret, salted_password=secret),
        ),
    )
    done = AlterUserScramCredentialsResponse(
        results=(
            AlterUserScramCredentialsResult(user="bob"),
            AlterUserScramCredentialsResult(user="eve", error_code=92),
        )
    )
    assert credentials_altered(asked, done) == [
        Resource("User", "bob", 0, "set SCRAM-SHA-512, delete SCRAM-SHA-256"),
        Resource("User", "eve", 92, "delete unknown mechanism"),
    ]


def test_tokens_are_named_by_their_id() -> None:
    made = CreateDelegationTokenResponse(
        error_code=0, principal_type="User", principal_name="alice", token_id="an-id", hmac=b"top secret"
    )
    asked = CreateDelegationTokenRequest(renewers=(), max_lifetime_ms=-1)
    assert token_created(asked, made) == [Resource("DelegationToken", "an-id", 0, "owner User:alice")]
    renewal = RenewDelegationTokenRequest(hmac=b"top secret", renew_period_ms=1)
    assert token_changed(renewal, RenewDelegationTokenResponse(error_code=0)) == []


def test_acls_are_told_as_rules() -> None:
    rule = AclCreation(
        resource_type=2,
        resource_name="team.",
        resource_pattern_type=4,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    unknown = AclCreation(
        resource_type=99, resource_name="x", principal="User:a", host="*", operation=99, permission_type=99
    )
    created = acls_created(
        CreateAclsRequest(creations=(rule, unknown)),
        CreateAclsResponse(results=(AclCreationResult(), AclCreationResult(error_code=42))),
    )
    assert created == [
        Resource("Topic", "team.", 0, "Prefixed, Allow User:alice Read from *"),
        Resource("Unknown", "x", 42, "Literal, Unknown User:a Unknown from *"),
    ]


def test_deleted_acls_are_those_that_matched() -> None:
    wanted = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter="User:bob",
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    matched = DeleteAclsMatchingAcl(
        resource_type=3,
        resource_name="readers",
        pattern_type=3,
        principal="User:bob",
        host="10.0.0.7",
        operation=3,
        permission_type=2,
    )
    deleted = acls_deleted(
        DeleteAclsRequest(filters=(wanted, wanted)),
        DeleteAclsResponse(
            filter_results=(DeleteAclsFilterResult(matching_acls=(matched,)), DeleteAclsFilterResult(error_code=31))
        ),
    )
    assert deleted == [
        Resource("Group", "readers", 0, "Literal, Deny User:bob Read from 10.0.0.7"),
        Resource("Any", "", 31, "filter: Any, User:bob"),
    ]


def test_quotas_are_named_by_entity_and_key() -> None:
    entity = (
        AlteredEntity(entity_type="user", entity_name=None),
        AlteredEntity(entity_type="client-id", entity_name="a"),
    )
    asked = QuotaAlteration(entity=entity, ops=(QuotaOp(key="producer_byte_rate", value=5.0, remove=False),))
    done = QuotaAlterationResult(error_code=0, error_message=None, entity=entity[::-1])
    found = quotas_altered(
        AlterClientQuotasRequest(entries=(asked,), validate_only=False), AlterClientQuotasResponse(entries=(done,))
    )
    assert found == [Resource("ClientQuota", "client-id=a, user=<default>", 0, "producer_byte_rate")]


def test_organisations_are_named() -> None:
    asked = (
        OrganisationAlteration(name="acme", expected=None, definition="{}"),
        OrganisationAlteration(name="globex", expected="{}", definition=None),
    )
    done = tuple(
        OrganisationAlterationResult(name=each.name, error_code=code, error_message=None)
        for each, code in zip(asked, (0, 44), strict=True)
    )
    found = organisations_altered(
        AlterOrganisationsRequest(alterations=asked), AlterOrganisationsResponse(results=done)
    )
    assert found == [Resource("Organisation", "acme", 0, "set"), Resource("Organisation", "globex", 44, "delete")]


def test_others() -> None:
    grown = partitions_created(
        CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name="a", count=6, assignments=None),), timeout_ms=1, validate_only=False
        ),
        CreatePartitionsResponse(results=(CreatePartitionsTopicResult(name="a", error_code=0),)),
    )
    assert grown == [Resource("Topic", "a", 0, "6 partitions")]
    offsets = offsets_deleted(
        OffsetDeleteRequest(group_id="readers", topics=()),
        OffsetDeleteResponse(
            topics=(
                OffsetDeleteTopicResponse(
                    name="a", partitions=(OffsetDeletePartitionResponse(partition_index=2, error_code=86),)
                ),
            )
        ),
    )
    assert offsets == [Resource("Group", "readers"), Resource("Partition", "a-2", 86)]
    features = features_updated(
        UpdateFeaturesRequest(feature_updates=(FeatureUpdate(feature="group.version", max_version_level=1),)),
        UpdateFeaturesResponse(error_code=41),
    )
    assert features == [Resource("Feature", "group.version", 41, "level 1")]
