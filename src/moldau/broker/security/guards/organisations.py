"""Guards of the APIs about organisations, which are of the cluster: a member sees its own, if it administers that."""

from moldau.base.errors import WireError
from moldau.broker.security.gate import Narrowed, Verdict, Visitor
from moldau.broker.security.guards.cluster import FAILED
from moldau.security.acls import Operation
from moldau.security.organisations import without_members
from moldau.wire.declare import replace
from moldau.wire.messages.alter_organisations import (
    AlterOrganisationsRequest,
    AlterOrganisationsResponse,
    OrganisationAlterationResult,
)
from moldau.wire.messages.describe_organisations import (
    DescribedOrganisation,
    DescribeOrganisationsRequest,
    DescribeOrganisationsResponse,
)


def describe_organisations(visitor: Visitor, request: DescribeOrganisationsRequest) -> Verdict:
    """To the administrator of an organisation no other one exists. It sees limits and usage, not who has which role."""
    own = visitor.administered
    if own is None:
        may = visitor.may_cluster(Operation.DESCRIBE)
        return None if may else DescribeOrganisationsResponse(error_code=FAILED, organisations=())
    asked = (own,) if request.names is None else request.names

    def complete(response: DescribeOrganisationsResponse) -> DescribeOrganisationsResponse:
        found = {row.name: _for_its_administrator(row) for row in response.organisations}
        return replace(response, organisations=tuple(found.get(name) or _unknown(name) for name in asked))

    return Narrowed(replace(request, names=(own,) if own in asked else ()), complete)


def _for_its_administrator(row: DescribedOrganisation) -> DescribedOrganisation:
    definition = None if row.definition is None else without_members(row.name, row.definition)
    return replace(row, definition=definition)


def _unknown(name: str) -> DescribedOrganisation:
    error = WireError.RESOURCE_NOT_FOUND
    return DescribedOrganisation(error_code=error, name=name, definition=None, connections=0, usage=())


def no_organisations(request: AlterOrganisationsRequest) -> AlterOrganisationsResponse:
    return AlterOrganisationsResponse(
        results=tuple(
            OrganisationAlterationResult(name=each.name, error_code=FAILED, error_message=FAILED.doc)
            for each in request.alterations
        )
    )
