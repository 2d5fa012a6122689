"""AlterOrganisations 0: create, change and delete organisations. Each succeeds or fails by itself.

Listed for Moldau's own clients only.
"""

from collections.abc import Collection

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import NOTHING, ControllerResponse, unless_deposed
from moldau.metadata.changes import Change, Decide, DocumentsChanged, decide_each
from moldau.metadata.documents import segment
from moldau.metadata.image import ClusterImage
from moldau.security.organisations import (
    NAME,
    MalformedOrganisation,
    Organisation,
    from_json,
    path_of,
    problem_of,
    product_of,
)
from moldau.wire.messages.alter_organisations import (
    AlterOrganisationsRequest,
    AlterOrganisationsResponse,
    OrganisationAlteration,
    OrganisationAlterationResult,
)

USERS = "/config/users/"


async def alter_organisations(
    ctx: ControlContext, request: AlterOrganisationsRequest, call: Call
) -> ControllerResponse[AlterOrganisationsResponse]:
    decides = [_deciding(each) for each in request.alterations]
    decisions = decide_each(ctx.image, decides) if request.validate_only else await ctx.controller.submit_each(decides)
    results = tuple(_result(each.name, decision) for each, decision in zip(request.alterations, decisions, strict=True))
    return unless_deposed(AlterOrganisationsResponse(results=results), decisions)


def _deciding(asked: OrganisationAlteration) -> Decide:
    wanted = _read(asked)

    def decide(image: ClusterImage) -> Change | Refusal:
        if isinstance(wanted, Refusal):
            return wanted
        path = path_of(asked.name)
        before = image.documents.get(path)
        if before != asked.expected:
            return Refusal(WireError.INVALID_UPDATE_VERSION, f"Organisation {asked.name} has changed meanwhile.")
        if before == asked.definition:
            return NOTHING
        refusal = _deleting(image, asked.name) if wanted is None else _dropping(image, _products(before), wanted)
        return refusal or DocumentsChanged({path: asked.definition})

    return decide


def _read(asked: OrganisationAlteration) -> Organisation | Refusal | None:
    """The organisation as it shall be; None: deleted."""
    if not NAME.fullmatch(asked.name):
        return _invalid(f"An organisation's name has lower-case letters, digits and dashes, got {asked.name!r}.")
    if asked.definition is None:
        return None
    try:
        organisation = from_json(asked.name, asked.definition)
    except MalformedOrganisation as problem:
        return _invalid(f"The definition cannot be read: {problem}.")
    problem_found = problem_of(organisation)
    return organisation if problem_found is None else _invalid(problem_found)


def _deleting(image: ClusterImage, name: str) -> Refusal | None:
    """Why an organisation cannot be deleted: what it has would belong to the cluster."""
    of_users = f"{USERS}{segment(f'{name}/')}"
    topics = sum(topic.startswith(f"{name}.") for topic in image.topics)
    users = sum(path.startswith(of_users) for path in image.documents)
    if topics or users:
        have = f"it has {topics} topic{'' if topics == 1 else 's'} and {users} user{'' if users == 1 else 's'}"
        return Refusal(WireError.POLICY_VIOLATION, f"Organisation {name} cannot be deleted: {have}.")
    return None


def _dropping(image: ClusterImage, before: Collection[str], wanted: Organisation) -> Refusal | None:
    """Why products cannot be left out that there are now. Topics of no product may be older than their organisation."""
    dropped = [product for product in before if product not in wanted.products]
    for topic in image.topics if dropped else ():
        product = product_of(topic.removeprefix(wanted.prefix))
        if topic.startswith(wanted.prefix) and product in dropped:
            message = f"Product {wanted.name}/{product} cannot be deleted: it has topics."
            return Refusal(WireError.POLICY_VIOLATION, message)
    return None


def _products(definition: str | None) -> Collection[str]:
    """Of an organisation as it is; none of one that does not exist or cannot be read."""
    try:
        return () if definition is None else from_json("", definition).products
    except MalformedOrganisation:
        return ()


def _result(name: str, decision: Change | Refusal) -> OrganisationAlterationResult:
    if isinstance(decision, Refusal):
        return OrganisationAlterationResult(name=name, error_code=decision.error, error_message=decision.message)
    return OrganisationAlterationResult(name=name, error_code=WireError.NONE, error_message=None)


def _invalid(message: str) -> Refusal:
    return Refusal(WireError.INVALID_REQUEST, message)
