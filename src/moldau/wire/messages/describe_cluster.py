"""DescribeCluster: the brokers and the controller.

Version 1 adds the endpoint type, brokers or controllers, version 2 fenced brokers.
"""

from moldau.wire.declare import BOOL, INT8, INT16, INT32, STRING, Array, message, struct, wire


@message(key=60, versions=(0, 2), flexible=0)
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = wire(BOOL)
    endpoint_type: int = wire(INT8, since=1, default=1)
    include_fenced_brokers: bool = wire(BOOL, since=2, default=False)


@struct
class DescribeClusterBroker:
    broker_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable=0, default=None)
    is_fenced: bool = wire(BOOL, since=2, default=False)


@message(key=60, versions=(0, 2), flexible=0)
class DescribeClusterResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    endpoint_type: int = wire(INT8, since=1, default=1)
    cluster_id: str = wire(STRING)
    controller_id: int = wire(INT32, default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = wire(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = wire(INT32, default=-2147483648)
