"""DeleteGroups: delete groups without members, with their offsets (KIP-229)."""

from moldau.wire.declare import INT16, INT32, STRING, Array, message, struct, wire


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest:
    groups_names: tuple[str, ...] = wire(Array(STRING))


@struct
class DeletableGroupResult:
    group_id: str = wire(STRING)
    error_code: int = wire(INT16, default=0)


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[DeletableGroupResult, ...] = wire(Array(DeletableGroupResult))
