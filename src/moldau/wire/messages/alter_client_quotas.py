"""AlterClientQuotas: set and remove quotas of users, client ids and addresses (KIP-546). Version 1 is flexible."""

from moldau.wire.declare import BOOL, FLOAT64, INT16, INT32, STRING, Array, message, struct, wire


@struct
class AlteredEntity:
    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable=0)  # None: the default


@struct
class QuotaOp:
    key: str = wire(STRING)
    value: float = wire(FLOAT64)
    remove: bool = wire(BOOL)


@struct
class QuotaAlteration:
    entity: tuple[AlteredEntity, ...] = wire(Array(AlteredEntity))
    ops: tuple[QuotaOp, ...] = wire(Array(QuotaOp))


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest:
    entries: tuple[QuotaAlteration, ...] = wire(Array(QuotaAlteration))
    validate_only: bool = wire(BOOL)


@struct
class QuotaAlterationResult:
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    entity: tuple[AlteredEntity, ...] = wire(Array(AlteredEntity))


@message(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    entries: tuple[QuotaAlterationResult, ...] = wire(Array(QuotaAlterationResult))
