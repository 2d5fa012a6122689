"""FindCoordinator: the coordinator of a group, a transactional id or a share group.

Version 1 adds the type of the key, 4 has several keys. Earlier versions have one key, which the response does not
repeat: here lists of one, in the response with an empty key.
"""

from moldau.wire.declare import (
    COORDINATOR_KEY,
    GROUP_ID,
    INT8,
    INT16,
    INT32,
    STRING,
    Array,
    message,
    older_form,
    struct,
    wire,
)
from moldau.wire.primitives import Unencodable


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest:
    key_type: int = wire(INT8, default=0)
    coordinator_keys: tuple[str, ...] = wire(Array(COORDINATOR_KEY))


@older_form(of=FindCoordinatorRequest, until=3)
class FindOneCoordinatorRequest:
    key: str = wire(COORDINATOR_KEY)
    key_type: int = wire(INT8, since=1, default=0)

    def to_newest(self) -> FindCoordinatorRequest:
        return FindCoordinatorRequest(key_type=self.key_type, coordinator_keys=(self.key,))

    @classmethod
    def from_newest(cls, newest: FindCoordinatorRequest) -> "FindOneCoordinatorRequest":
        if len(newest.coordinator_keys) != 1:
            raise Unencodable("FindCoordinatorRequest before version 4 has exactly one key")
        return cls(key=newest.coordinator_keys[0], key_type=newest.key_type)


@struct
class Coordinator:
    key: str = wire(GROUP_ID)  # or a transactional id: the request says which
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default="")


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    coordinators: tuple[Coordinator, ...] = wire(Array(Coordinator))


@older_form(of=FindCoordinatorResponse, until=3)
class FindOneCoordinatorResponse:
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=1, since=1, default="", ignorable=True)
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)

    def to_newest(self) -> FindCoordinatorResponse:
        only = Coordinator(
            key="",
            node_id=self.node_id,
            host=self.host,
            port=self.port,
            error_code=self.error_code,
            error_message=self.error_message,
        )
        return FindCoordinatorResponse(throttle_time_ms=self.throttle_time_ms, coordinators=(only,))

    @classmethod
    def from_newest(cls, newest: FindCoordinatorResponse) -> "FindOneCoordinatorResponse":
        if len(newest.coordinators) != 1:
            raise Unencodable("FindCoordinatorResponse before version 4 has exactly one coordinator")
        only = newest.coordinators[0]
        return cls(
            throttle_time_ms=newest.throttle_time_ms,
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )
