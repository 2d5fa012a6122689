"""DescribeOrganisations 0: definitions, and what members use of this broker. Listed for Moldau's own clients only."""

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.metadata.documents import Documents
from moldau.security.organisations import path_of
from moldau.wire.messages.describe_organisations import (
    DescribedOrganisation,
    DescribeOrganisationsRequest,
    DescribeOrganisationsResponse,
    ProductUsage,
)


def describe_organisations(
    ctx: ControlContext, request: DescribeOrganisationsRequest, call: Call
) -> DescribeOrganisationsResponse:
    names = sorted(ctx.organisations.organisations) if request.names is None else request.names
    documents = ctx.image.documents
    return DescribeOrganisationsResponse(
        error_code=WireError.NONE, organisations=tuple(_describe(ctx, documents, name) for name in names)
    )


def _describe(ctx: ControlContext, documents: Documents, name: str) -> DescribedOrganisation:
    definition = documents.get(path_of(name))
    if definition is None:
        error = WireError.RESOURCE_NOT_FOUND
        return DescribedOrganisation(error_code=error, name=name, definition=None, connections=0, usage=())
    traffic, stored = ctx.organisations.traffic.by_product(name), ctx.organisations.storage.by_product(name)
    return DescribedOrganisation(
        error_code=WireError.NONE,
        name=name,
        definition=definition,
        connections=ctx.organisations.connections(name),
        usage=tuple(
            ProductUsage(
                product=product,
                bytes_in=traffic[product].bytes_in if product in traffic else 0,
                bytes_out=traffic[product].bytes_out if product in traffic else 0,
                bytes_stored=stored.get(product, 0),
            )
            for product in sorted(traffic.keys() | stored.keys())
        ),
    )
