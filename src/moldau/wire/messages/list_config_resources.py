"""ListConfigResources: the resources that have configs (KIP-1142).

Version 0 was ListClientMetricsResources and lists these only (KIP-1000); 1 adds resource types.
"""

from moldau.wire.declare import INT8, INT16, INT32, RESOURCE_NAME, Array, message, struct, wire

CLIENT_METRICS = 16


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest:
    resource_types: tuple[int, ...] = wire(Array(INT8), since=1, default=())  # empty: all


@struct
class ListedConfigResource:
    resource_name: str = wire(RESOURCE_NAME)
    resource_type: int = wire(INT8, since=1, default=CLIENT_METRICS, ignorable=True)


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    config_resources: tuple[ListedConfigResource, ...] = wire(Array(ListedConfigResource), default=())
