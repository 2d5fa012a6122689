"""The requests of the ACL matrix about users: their quotas, SCRAM credentials and delegation tokens."""

from collections.abc import Iterator

from moldau.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlteredEntity, QuotaAlteration, QuotaOp
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.wire.messages.create_delegation_token import CreatableRenewer, CreateDelegationTokenRequest
from moldau.wire.messages.describe_client_quotas import EXACT, DescribeClientQuotasRequest, QuotaFilter
from moldau.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest, TokenOwner
from moldau.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

ADMIN, BOB, NOBODY = "admin", "bob", "nobody"  # the owner of the token, its renewer, and a user that is not there
OF_BOB = DescribeClientQuotasRequest(
    components=(QuotaFilter(entity_type="user", match_type=EXACT, match=BOB),), strict=True
)
OF_ADMIN = DescribeDelegationTokenRequest(owners=(TokenOwner(principal_type="User", principal_name=ADMIN),))
UNKNOWN = b"unknown"


def requests_about_users(hmac: bytes) -> Iterator[tuple[str, int, object]]:
    """A name, the version and the request; `hmac` is that of the administrator's token. None changes anything."""
    yield "DescribeClientQuotas", 1, OF_BOB
    yield "DescribeClientQuotas of all", 1, DescribeClientQuotasRequest(components=(), strict=False)
    yield (
        "AlterClientQuotas",
        1,
        AlterClientQuotasRequest(
            entries=(quota(BOB, "producer_byte_rate"), quota(NOBODY, "unknown_rate")), validate_only=True
        ),
    )
    yield (
        "DescribeUserScramCredentials",
        0,
        DescribeUserScramCredentialsRequest(users=(UserName(name=BOB), UserName(name=NOBODY))),
    )
    yield "DescribeUserScramCredentials of all", 0, DescribeUserScramCredentialsRequest(users=())
    yield (
        "AlterUserScramCredentials",
        0,
        AlterUserScramCredentialsRequest(
            deletions=(ScramCredentialDeletion(name=NOBODY, mechanism=1),), upsertions=(credential(BOB, iterations=1),)
        ),
    )
    yield "CreateDelegationToken", 3, _invalid_token()
    yield "CreateDelegationToken for another", 3, _invalid_token(BOB)
    for name, found in (("", hmac), (" of none", UNKNOWN)):
        yield f"RenewDelegationToken{name}", 2, RenewDelegationTokenRequest(hmac=found, renew_period_ms=-1)
        yield f"ExpireDelegationToken{name}", 2, ExpireDelegationTokenRequest(hmac=found, expiry_time_period_ms=-1)
    yield "DescribeDelegationToken", 3, OF_ADMIN
    yield (
        "DescribeDelegationToken of a renewer",
        3,
        DescribeDelegationTokenRequest(owners=(TokenOwner(principal_type="User", principal_name=BOB),)),
    )
    yield "DescribeDelegationToken of no owner", 3, DescribeDelegationTokenRequest(owners=())
    yield "DescribeDelegationToken of all", 3, DescribeDelegationTokenRequest(owners=None)


def quota(user: str, key: str) -> QuotaAlteration:
    return QuotaAlteration(
        entity=(AlteredEntity(entity_type="user", entity_name=user),),
        ops=(QuotaOp(key=key, value=1000.0, remove=False),),
    )


def credential(user: str, iterations: int) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user, mechanism=1, iterations=iterations, salt=b"salt", salted_password=bytes(32)
    )


def _invalid_token(owner: str | None = None) -> CreateDelegationTokenRequest:
    """Of an owner that may be another, and with a renewer that cannot be: an allowed one makes no token."""
    return CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=(CreatableRenewer(principal_type="Group", principal_name="everyone"),),
        max_lifetime_ms=-1,
    )
