"""Heartbeat: keep a member of a classic group alive. Version 3 adds static members (KIP-345)."""

from moldau.wire.declare import GROUP_ID, INT16, INT32, STRING, message, wire


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest:
    group_id: str = wire(GROUP_ID)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable=3, since=3, default=None)


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatResponse:
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16, default=0)
