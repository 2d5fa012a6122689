"""ApiVersions: the APIs and versions of a broker, and the finalized features of the cluster.

Version 1 adds the throttle time, 3 the client's name and the features (all tagged), 4 lets a feature start at
version 0. The response always has header version 0 (see `headers`), so that a client can read it even if the broker
does not know the version of the request.
"""

from moldau.wire.declare import BOOL, INT16, INT32, INT64, STRING, Array, message, struct, wire


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest:
    client_software_name: str = wire(STRING, since=3, default="", ignorable=True)
    client_software_version: str = wire(STRING, since=3, default="", ignorable=True)


@struct
class ApiVersion:
    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@struct
class SupportedFeatureKey:
    name: str = wire(STRING)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@struct
class FinalizedFeatureKey:
    name: str = wire(STRING)
    max_version_level: int = wire(INT16)
    min_version_level: int = wire(INT16)


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    error_code: int = wire(INT16)
    api_keys: tuple[ApiVersion, ...] = wire(Array(ApiVersion))
    throttle_time_ms: int = wire(INT32, since=1, default=0, ignorable=True)
    supported_features: tuple[SupportedFeatureKey, ...] = wire(
        Array(SupportedFeatureKey), tag=0, since=3, default=(), ignorable=True
    )
    finalized_features_epoch: int = wire(INT64, tag=1, since=3, default=-1, ignorable=True)
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire(
        Array(FinalizedFeatureKey), tag=2, since=3, default=(), ignorable=True
    )
    zk_migration_ready: bool = wire(BOOL, tag=3, since=3, default=False, ignorable=True)
