"""Quotas of users, client ids and addresses: list them, find those of a client, set and remove them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moldau.base.errors import WireError
from moldau.client.admin.cluster import Cluster, retry_transient
from moldau.client.admin.errors import refused
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
    QuotaAlteration,
    QuotaOp,
)
from moldau.wire.messages.describe_client_quotas import DEFAULT as DEFAULT_MATCH
from moldau.wire.messages.describe_client_quotas import (
    EXACT,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaFilter,
)

USER, CLIENT_ID, IP = "user", "client-id", "ip"

Entity = Mapping[str, str | None]  # names by type; None: the default for all without a quota of their own


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """The quotas that are set for one entity."""

    entity: Entity
    values: Mapping[str, float]

    @property
    def name(self) -> str:
        return name_of(self.entity)


def name_of(entity: Entity) -> str:
    """As commands print an entity: `user alice, default client-id`."""
    order = [kind for kind in (USER, CLIENT_ID, IP) if kind in entity]
    return ", ".join(f"default {kind}" if entity[kind] is None else f"{kind} {entity[kind]}" for kind in order)


def list_quotas(cluster: Cluster, entity: Entity | None = None) -> list[EntityQuotas]:
    """All quotas, by entity; or those that are set for exactly one."""
    components = tuple(
        QuotaFilter(entity_type=kind, match_type=DEFAULT_MATCH if name is None else EXACT, match=name)
        for kind, name in (entity or {}).items()
    )
    request = DescribeClientQuotasRequest(components=components, strict=entity is not None)
    answer = retry_transient(
        lambda: cluster.ask(request, DescribeClientQuotasResponse), lambda response: response.error_code
    )
    if answer.error_code:
        raise refused(answer.error_code, answer.error_message or "the quotas cannot be listed")
    found = [
        EntityQuotas(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]
    return sorted(found, key=lambda each: each.name)


def quotas_for(cluster: Cluster, client: Mapping[str, str]) -> dict[str, tuple[float, Entity]]:
    """The quotas that hold for a user with a client id, or for an address, and where each is set."""
    matching = [each for each in list_quotas(cluster) if _matches(each.entity, client)]
    found: dict[str, tuple[float, Entity]] = {}
    for each in sorted(matching, key=lambda quotas: _precedence(quotas.entity)):
        for key, value in each.values.items():
            found.setdefault(key, (value, each.entity))
    return found


def _matches(entity: Entity, client: Mapping[str, str]) -> bool:
    return all(kind in client and name in (client[kind], None) for kind, name in entity.items())


def _precedence(entity: Entity) -> tuple[int, ...]:
    """Kafka's order, the first wins: by the user, then by the client id; each named before default before neither."""
    return tuple(2 if kind not in entity else 1 if entity[kind] is None else 0 for kind in (USER, CLIENT_ID, IP))


def alter_quotas(
    cluster: Cluster, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Set quotas of an entity; None removes one."""
    alteration = QuotaAlteration(
        entity=tuple(AlteredEntity(entity_type=kind, entity_name=name) for kind, name in entity.items()),
        ops=tuple(QuotaOp(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()),
    )
    request = AlterClientQuotasRequest(entries=(alteration,), validate_only=validate_only)
    answer = retry_transient(lambda: cluster.ask(request, AlterClientQuotasResponse), _first_error)
    for entry in answer.entries:
        if entry.error_code:
            raise refused(entry.error_code, (entry.error_message or "the quotas cannot be changed").rstrip("."))


def _first_error(answer: AlterClientQuotasResponse) -> int:
    return next((entry.error_code for entry in answer.entries if entry.error_code), WireError.NONE)


def entity_of(pairs: Iterable[tuple[str, str | None, bool]]) -> Entity:
    """The entity of (type, name, whether the default is meant instead)."""
    return {kind: None if default else name for kind, name, default in pairs if default or name is not None}
