"""BrokerHeartbeat: a broker requests a controlled shutdown from the controller. Between brokers only.

Version 1 adds failed log directories.
"""

from uuid import UUID

from moldau.wire.declare import BOOL, INT16, INT32, INT64, UUID_, Array, message, wire


@message(key=63, versions=(0, 1), flexible=0)
class BrokerHeartbeatRequest:
    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, default=-1)
    current_metadata_offset: int = wire(INT64)
    want_fence: bool = wire(BOOL, default=False)
    want_shut_down: bool = wire(BOOL)
    offline_log_dirs: tuple[UUID, ...] = wire(Array(UUID_), tag=0, since=1, default=(), ignorable=True)


@message(key=63, versions=(0, 1), flexible=0)
class BrokerHeartbeatResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    is_caught_up: bool = wire(BOOL, default=False)
    is_fenced: bool = wire(BOOL, default=True)
    should_shut_down: bool = wire(BOOL, default=False)
