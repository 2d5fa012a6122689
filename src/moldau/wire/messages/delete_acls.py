"""DeleteAcls: the ACLs that match each filter. Version 2 is flexible; 3 knows resources of type USER."""

from moldau.wire.declare import INT8, INT16, INT32, STRING, Array, message, struct, wire


@struct
class DeleteAclsFilter:
    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable=0)
    pattern_type_filter: int = wire(INT8, default=3)
    principal_filter: str | None = wire(STRING, nullable=0)
    host_filter: str | None = wire(STRING, nullable=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message(key=31, versions=(1, 3), flexible=2)
class DeleteAclsRequest:
    filters: tuple[DeleteAclsFilter, ...] = wire(Array(DeleteAclsFilter))


@struct
class DeleteAclsMatchingAcl:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, default=3)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@struct
class DeleteAclsFilterResult:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = wire(Array(DeleteAclsMatchingAcl), default=())


@message(key=31, versions=(1, 3), flexible=2)
class DeleteAclsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    filter_results: tuple[DeleteAclsFilterResult, ...] = wire(Array(DeleteAclsFilterResult))
