"""FindCoordinator 0–6: there is none yet, and that is the answer. librdkafka uses lz4 only if this API is served."""

from moldau.base.errors import WireError
from moldau.broker.context import Context
from moldau.broker.dispatch import Call
from moldau.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2


def find_coordinator(ctx: Context, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    known = request.key_type in (GROUP, TRANSACTION) or (request.key_type == SHARE and call.version >= 6)
    error = WireError.COORDINATOR_NOT_AVAILABLE if known else WireError.INVALID_REQUEST
    return FindCoordinatorResponse(
        coordinators=tuple(
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=error.doc)
            for key in request.coordinator_keys
        )
    )
