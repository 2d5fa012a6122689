"""Quotas set and read with raw requests."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from support.clients.raw import RawClient

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
Entity = Mapping[str, str | None]  # names by type; None is the default
Alteration = tuple[Entity, Mapping[str, float | None]]  # None removes a quota
ENTRY = AlterClientQuotasRequest.EntryData


def alter(client: RawClient, *wanted: Alteration, dry: bool = False, version: int = 1) -> list[tuple[int, str | None]]:
    """Error code and message for each entity."""
    entries = [
        ENTRY(
            entity=[ENTRY.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[ENTRY.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
        )
        for entity, values in wanted
    ]
    answer = client.ask(AlterClientQuotasRequest(entries=entries, validate_only=dry), version, client_id="admin")
    return [(entry.error_code, entry.error_message) for entry in answer.entries]


def describe(
    client: RawClient, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]] | int:
    """Quotas by entity, or the error code. An entity is its sorted types and names."""
    asked = [
        DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=how, match=name)
        for kind, how, name in components
    ]
    answer = client.ask(DescribeClientQuotasRequest(components=asked, strict=strict), version, client_id="admin")
    if answer.error_code:
        return int(answer.error_code)
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


@contextmanager
def quota(bootstrap: str, entity: Entity, **values: float) -> Iterator[None]:
    """Quotas that last for a while."""
    with RawClient(bootstrap) as client:
        assert alter(client, (entity, values)) == [(0, None)]
        try:
            yield
        finally:
            assert alter(client, (entity, dict.fromkeys(values))) == [(0, None)]
