"""DeleteGroups: delete groups without members, with their offsets (KIP-229)."""

from moldau.wire.declare import GROUP_ID, INT16, INT32, Array, message, struct, wire


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest:
    groups_names: tuple[str, ...] = wire(Array(GROUP_ID))


@struct
class DeletableGroupResult:
    group_id: str = wire(GROUP_ID)
    error_code: int = wire(INT16, default=0)


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[DeletableGroupResult, ...] = wire(Array(DeletableGroupResult))
