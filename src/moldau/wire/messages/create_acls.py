"""CreateAcls: each ACL is created or refused. Version 2 is flexible; 3 knows resources of type USER."""

from moldau.wire.declare import INT8, INT16, INT32, STRING, Array, message, struct, wire


@struct
class AclCreation:
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    resource_pattern_type: int = wire(INT8, default=3)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message(key=30, versions=(1, 3), flexible=2)
class CreateAclsRequest:
    creations: tuple[AclCreation, ...] = wire(Array(AclCreation))


@struct
class AclCreationResult:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=0, default=None)


@message(key=30, versions=(1, 3), flexible=2)
class CreateAclsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[AclCreationResult, ...] = wire(Array(AclCreationResult))
