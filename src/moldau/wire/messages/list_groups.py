"""ListGroups: the groups of a coordinator. Version 4 filters by state (KIP-518), 5 by type (KIP-848)."""

from moldau.wire.declare import GROUP_ID, INT16, INT32, STRING, Array, message, struct, wire


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest:
    states_filter: tuple[str, ...] = wire(Array(STRING), since=4, default=())  # empty: any
    types_filter: tuple[str, ...] = wire(Array(STRING), since=5, default=())


@struct
class ListedGroup:
    group_id: str = wire(GROUP_ID)
    protocol_type: str = wire(STRING, default="")
    group_state: str = wire(STRING, since=4, default="", ignorable=True)
    group_type: str = wire(STRING, since=5, default="", ignorable=True)


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse:
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16, default=0)
    groups: tuple[ListedGroup, ...] = wire(Array(ListedGroup), default=())
