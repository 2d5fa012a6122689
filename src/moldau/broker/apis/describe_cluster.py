"""DescribeCluster 0–2: the cluster's id, controller and brokers. 1: endpoint types. 2: fenced brokers."""

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


def describe_cluster(ctx: ControlContext, request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    image = ctx.controller.image
    if request.endpoint_type == CONTROLLERS:
        return _refuse(
            request, WireError.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of type BROKER"
        )
    if request.endpoint_type != BROKERS:
        return _refuse(request, WireError.UNSUPPORTED_ENDPOINT_TYPE, f"No endpoint has type {request.endpoint_type}")
    return DescribeClusterResponse(
        error_code=WireError.NONE,
        endpoint_type=BROKERS,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=tuple(
            DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker in image.brokers.values()
            if (endpoint := broker.endpoints.get(call.session.listener)) is not None
        ),
    )


def _refuse(request: DescribeClusterRequest, error: WireError, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=error, error_message=message, endpoint_type=request.endpoint_type, cluster_id="", brokers=()
    )
