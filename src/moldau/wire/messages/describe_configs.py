"""DescribeConfigs: configs of topics, brokers and groups, with the sources of their values.

Version 3 adds types and documentation.
"""

from moldau.wire.declare import BOOL, INT8, INT16, INT32, RESOURCE_NAME, STRING, Array, message, struct, wire


@struct
class DescribeConfigsResource:
    resource_type: int = wire(INT8)
    resource_name: str = wire(RESOURCE_NAME)
    configuration_keys: tuple[str, ...] | None = wire(Array(STRING), nullable=0)


@message(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsRequest:
    resources: tuple[DescribeConfigsResource, ...] = wire(Array(DescribeConfigsResource))
    include_synonyms: bool = wire(BOOL, default=False)
    include_documentation: bool = wire(BOOL, since=3, default=False)


@struct
class DescribeConfigsSynonym:
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)
    source: int = wire(INT8)


@struct
class DescribeConfigsResourceResult:
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)
    read_only: bool = wire(BOOL)
    config_source: int = wire(INT8, default=-1)
    is_sensitive: bool = wire(BOOL)
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire(Array(DescribeConfigsSynonym))
    config_type: int = wire(INT8, since=3, default=0, ignorable=True)
    documentation: str | None = wire(STRING, nullable=0, since=3, default="", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(RESOURCE_NAME)
    configs: tuple[DescribeConfigsResourceResult, ...] = wire(Array(DescribeConfigsResourceResult))


@message(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[DescribeConfigsResult, ...] = wire(Array(DescribeConfigsResult))
