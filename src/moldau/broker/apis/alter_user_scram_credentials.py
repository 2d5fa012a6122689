"""AlterUserScramCredentials 0: set and delete credentials of users, each user's on its own."""

from collections import Counter

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import ControllerResponse, unless_deposed
from moldau.broker.security.credentials import user_path
from moldau.metadata.changes import Change, Decide, DocumentsChanged
from moldau.metadata.image import ClusterImage
from moldau.security.scram import BY_CODE, MAX_ITERATIONS, MIN_ITERATIONS, Mechanism, credential_of
from moldau.security.users import credentials, with_credentials
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


async def alter_user_scram_credentials(
    ctx: ControlContext, request: AlterUserScramCredentialsRequest, call: Call
) -> ControllerResponse[AlterUserScramCredentialsResponse]:
    alterations: tuple[Alteration, ...] = (*request.deletions, *request.upsertions)
    counts = Counter(each.name for each in alterations)
    once = {each.name: each for each in alterations}
    decisions = await ctx.controller.submit_each([_deciding(each, counts[name] > 1) for name, each in once.items()])
    results = tuple(_result(name, decision) for name, decision in zip(once, decisions, strict=True))
    return unless_deposed(AlterUserScramCredentialsResponse(results=results), decisions)


def _deciding(alteration: Alteration, twice: bool) -> Decide:
    if twice:
        refusal = Refusal(WireError.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
        return lambda image: refusal
    return lambda image: _decide(image, alteration)


def _decide(image: ClusterImage, alteration: Alteration) -> Change | Refusal:
    mechanism = BY_CODE.get(alteration.mechanism)
    if not alteration.name:
        return Refusal(WireError.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism is None:
        return Refusal(WireError.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(alteration, ScramCredentialDeletion):
        return _delete(image, alteration.name, mechanism)
    if alteration.iterations < MIN_ITERATIONS:
        return Refusal(WireError.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if alteration.iterations > MAX_ITERATIONS:
        return Refusal(WireError.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not (alteration.salt and alteration.salted_password):
        return Refusal(WireError.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")
    path = user_path(alteration.name)
    new = credential_of(mechanism.digest, alteration.salted_password, alteration.salt, alteration.iterations)
    return DocumentsChanged({path: with_credentials(image.documents.get(path), {mechanism.name: new})})


def _delete(image: ClusterImage, name: str, mechanism: Mechanism) -> Change | Refusal:
    path = user_path(name)
    text = image.documents.get(path)
    if mechanism.name not in credentials(text):
        return Refusal(WireError.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return DocumentsChanged({path: with_credentials(text, {mechanism.name: None})})


def _result(user: str, decision: Change | Refusal) -> AlterUserScramCredentialsResult:
    if isinstance(decision, Refusal):
        return AlterUserScramCredentialsResult(user=user, error_code=decision.error, error_message=decision.message)
    return AlterUserScramCredentialsResult(user=user)
