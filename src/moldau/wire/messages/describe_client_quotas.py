"""DescribeClientQuotas: the quotas of the users, client ids and addresses that a filter matches (KIP-546).

Version 1 is flexible.
"""

from moldau.wire.declare import BOOL, FLOAT64, INT8, INT16, INT32, STRING, Array, message, struct, wire

EXACT, DEFAULT, SPECIFIED = 0, 1, 2  # match types; SPECIFIED: any name, and the default


@struct
class QuotaFilter:
    entity_type: str = wire(STRING)
    match_type: int = wire(INT8)
    match: str | None = wire(STRING, nullable=0)


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest:
    components: tuple[QuotaFilter, ...] = wire(Array(QuotaFilter))
    strict: bool = wire(BOOL)  # no entities with other types as well


@struct
class DescribedEntity:
    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable=0)  # None: the default


@struct
class DescribedQuota:
    key: str = wire(STRING)
    value: float = wire(FLOAT64)


@struct
class DescribedQuotas:
    entity: tuple[DescribedEntity, ...] = wire(Array(DescribedEntity))
    values: tuple[DescribedQuota, ...] = wire(Array(DescribedQuota))


@message(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    entries: tuple[DescribedQuotas, ...] | None = wire(Array(DescribedQuotas), nullable=0)
