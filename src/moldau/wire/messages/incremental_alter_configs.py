"""IncrementalAlterConfigs: set, delete, append to or subtract from single configs (KIP-339)."""

from moldau.wire.declare import BOOL, INT8, INT16, INT32, RESOURCE_NAME, STRING, Array, message, struct, wire


@struct
class AlterableConfig:
    name: str = wire(STRING)
    config_operation: int = wire(INT8)
    value: str | None = wire(STRING, nullable=0)


@struct
class AlterConfigsResource:
    resource_type: int = wire(INT8)
    resource_name: str = wire(RESOURCE_NAME)
    configs: tuple[AlterableConfig, ...] = wire(Array(AlterableConfig))


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest:
    resources: tuple[AlterConfigsResource, ...] = wire(Array(AlterConfigsResource))
    validate_only: bool = wire(BOOL)


@struct
class AlterConfigsResourceResponse:
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(RESOURCE_NAME)


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    responses: tuple[AlterConfigsResourceResponse, ...] = wire(Array(AlterConfigsResourceResponse))
