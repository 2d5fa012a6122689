"""ListConfigResources 0–1: topics, brokers, and groups with configs of their own. 0: client metrics only."""

from collections.abc import Callable, Iterable

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.resources import Resource
from moldau.metadata.image import ClusterImage
from moldau.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)

NAMES: dict[int, Callable[[ClusterImage], Iterable[str]]] = {
    Resource.TOPIC: lambda image: image.topics,
    Resource.BROKER: lambda image: map(str, image.brokers),
    Resource.BROKER_LOGGER: lambda image: (),
    Resource.CLIENT_METRICS: lambda image: (),
    Resource.GROUP: lambda image: image.group_configs,
}


def list_config_resources(
    ctx: ControlContext, request: ListConfigResourcesRequest, call: Call
) -> ListConfigResourcesResponse:
    asked = (Resource.CLIENT_METRICS,) if call.version == 0 else dict.fromkeys(request.resource_types or NAMES)
    if not NAMES.keys() >= set(asked):
        return ListConfigResourcesResponse(error_code=WireError.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=tuple(
            ListedConfigResource(resource_name=name, resource_type=kind)
            for kind in asked
            for name in NAMES[kind](ctx.image)
        )
    )
