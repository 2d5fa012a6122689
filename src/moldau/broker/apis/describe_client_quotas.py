"""DescribeClientQuotas 0–1: the quotas of the entities that match a filter."""

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.quota_documents import read_quotas
from moldau.broker.quota_entities import CLIENT_ID, IP, USER, parts_of
from moldau.security.quotas import DEFAULT, Entity, Name
from moldau.wire.messages.describe_client_quotas import (
    DEFAULT as MATCH_DEFAULT,
)
from moldau.wire.messages.describe_client_quotas import (
    EXACT,
    SPECIFIED,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntity,
    DescribedQuota,
    DescribedQuotas,
    QuotaFilter,
)

ANY = object()
Wanted = dict[str, object]  # by type: a name, DEFAULT, or ANY


def describe_client_quotas(
    ctx: ControlContext, request: DescribeClientQuotasRequest, call: Call
) -> DescribeClientQuotasResponse:
    wanted = _read_filter(request.components)
    if isinstance(wanted, Refusal):
        return DescribeClientQuotasResponse(error_code=wanted.error, error_message=wanted.message, entries=None)
    quotas, _ = read_quotas(ctx.image.documents)
    found = tuple(
        DescribedQuotas(
            entity=tuple(
                DescribedEntity(entity_type=kind, entity_name=name if isinstance(name, str) else None)
                for kind, name in parts_of(entity).items()
            ),
            values=tuple(DescribedQuota(key=key, value=value) for key, value in sorted(values.items())),
        )
        for entity, values in quotas.items()
        if _matches(entity, wanted, strict=request.strict)
    )
    return DescribeClientQuotasResponse(error_code=WireError.NONE, error_message=None, entries=found)


def _read_filter(components: tuple[QuotaFilter, ...]) -> Wanted | Refusal:
    wanted: Wanted = {}
    for each in components:
        name = _read_component(each)
        if isinstance(name, Refusal):
            return name
        if each.entity_type in wanted:
            return _invalid(f"Entity type {each.entity_type} cannot appear more than once in the filter.")
        wanted[each.entity_type] = name
    if IP in wanted and len(wanted) > 1:
        return _invalid("An ip cannot be combined with a user or a client-id in the filter.")
    return wanted


def _read_component(component: QuotaFilter) -> object | Refusal:
    kind, match = component.entity_type, component.match
    if not kind:
        return _invalid("Invalid empty entity type.")
    if kind not in (USER, CLIENT_ID, IP):
        return Refusal(WireError.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    names = {EXACT: match, MATCH_DEFAULT: DEFAULT, SPECIFIED: ANY}
    if component.match_type not in names:
        return _invalid(f"Unknown match type {component.match_type}")
    if (component.match_type == EXACT) != (match is not None):
        return _invalid(f"An exact match of a {kind} has a name, and no other match has one.")
    return names[component.match_type]


def _matches(entity: Entity, wanted: Wanted, *, strict: bool) -> bool:
    parts: dict[str, Name] = parts_of(entity)
    if strict and parts.keys() != wanted.keys():
        return False
    return all(kind in parts and (name is ANY or parts[kind] == name) for kind, name in wanted.items())


def _invalid(message: str) -> Refusal:
    return Refusal(WireError.INVALID_REQUEST, message)
