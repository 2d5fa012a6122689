"""DescribeUserScramCredentials 0: mechanisms and iterations of users; never keys or salts."""

from collections import Counter
from urllib.parse import unquote

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.security.credentials import USERS, user_path
from moldau.metadata.image import ClusterImage
from moldau.security.scram import SCRAM
from moldau.security.users import credentials
from moldau.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def describe_user_scram_credentials(
    ctx: ControlContext, request: DescribeUserScramCredentialsRequest, call: Call
) -> DescribeUserScramCredentialsResponse:
    image = ctx.image
    if not request.users:
        results = tuple(_describe(image, name) for name in _all_users(image))
        return DescribeUserScramCredentialsResponse(results=results)
    counts = Counter(each.name for each in request.users)
    return DescribeUserScramCredentialsResponse(
        results=tuple(_describe(image, name, twice=count > 1) for name, count in counts.items())
    )


def _all_users(image: ClusterImage) -> list[str]:
    """The users with credentials; a document below a user's, or with quotas alone, is none."""
    paths = [path for path in image.documents if path.startswith(USERS) and "/" not in path.removeprefix(USERS)]
    return sorted(unquote(path.removeprefix(USERS)) for path in paths if credentials(image.documents[path]))


def _describe(image: ClusterImage, name: str, *, twice: bool = False) -> DescribeUserScramCredentialsResult:
    if twice:
        words = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(
            user=name, error_code=WireError.DUPLICATE_RESOURCE, error_message=words
        )
    found = credentials(image.documents.get(user_path(name)))
    if not found:
        words = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(
            user=name, error_code=WireError.RESOURCE_NOT_FOUND, error_message=words
        )
    infos = (CredentialInfo(mechanism=SCRAM[each].code, iterations=found[each].iterations) for each in sorted(found))
    return DescribeUserScramCredentialsResult(user=name, error_message="", credential_infos=tuple(infos))
