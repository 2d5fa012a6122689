"""DescribeOrganisations: organisations and what they use of one broker. An API of Moldau's own."""

from moldau.wire.declare import INT16, INT32, INT64, STRING, Array, message, struct, wire

KEY = 20_000


@message(key=KEY, versions=(0, 0), flexible=0)
class DescribeOrganisationsRequest:
    names: tuple[str, ...] | None = wire(Array(STRING), nullable=0)  # None: all


@struct
class ProductUsage:
    product: str = wire(STRING)  # empty: what belongs to no product
    bytes_in: int = wire(INT64)  # since the broker's start, as bytes_out
    bytes_out: int = wire(INT64)
    bytes_stored: int = wire(INT64)  # of the partitions that the broker leads


@struct
class DescribedOrganisation:
    error_code: int = wire(INT16)
    name: str = wire(STRING)
    definition: str | None = wire(STRING, nullable=0)  # a JSON object
    connections: int = wire(INT32)
    usage: tuple[ProductUsage, ...] = wire(Array(ProductUsage))


@message(key=KEY, versions=(0, 0), flexible=0)
class DescribeOrganisationsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    organisations: tuple[DescribedOrganisation, ...] = wire(Array(DescribedOrganisation))
