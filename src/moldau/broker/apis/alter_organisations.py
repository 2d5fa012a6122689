"""AlterOrganisations 0: create, change and delete organisations. Each succeeds or fails by itself.

Listed for Moldau's own clients only.
"""

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
        refusal = _in_use(image, asked.name, wanted)
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


def _in_use(image: ClusterImage, name: str, wanted: Organisation | None) -> Refusal | None:
    """Why an organisation cannot be deleted, or lose products: what it has would belong to the cluster."""
    prefix = f"{name}."
    topics = [topic for topic in image.topics if topic.startswith(prefix)]
    if wanted is None:
        of_users = f"{USERS}{segment(f'{name}/')}"
        users = [path for path in image.documents if path.startswith(of_users)]
        if topics or users:
            have = f"it has {len(topics)} topics and {len(users)} users"
            return Refusal(WireError.POLICY_VIOLATION, f"Organisation {name} cannot be deleted: {have}.")
        return None
    for topic in topics:
        product = topic.removeprefix(prefix).partition(".")[0]
        if product not in wanted.products and _had(image, name, product):
            return Refusal(WireError.POLICY_VIOLATION, f"Product {name}/{product} cannot be deleted: it has topics.")
    return None


def _had(image: ClusterImage, name: str, product: str) -> bool:
    """Whether there is such a product now. Topics of no product may be older than their organisation."""
    before = image.documents.get(path_of(name))
    try:
        return before is not None and product in from_json(name, before).products
    except MalformedOrganisation:
        return False


def _result(name: str, decision: Change | Refusal) -> OrganisationAlterationResult:
    if isinstance(decision, Refusal):
        return OrganisationAlterationResult(name=name, error_code=decision.error, error_message=decision.message)
    return OrganisationAlterationResult(name=name, error_code=WireError.NONE, error_message=None)


def _invalid(message: str) -> Refusal:
    return Refusal(WireError.INVALID_REQUEST, message)
