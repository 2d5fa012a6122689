"""AlterOrganisations: create, change and delete organisations. An API of Moldau's own."""

from moldau.wire.declare import BOOL, INT16, INT32, STRING, Array, message, struct, wire

KEY = 20_001


@struct
class OrganisationAlteration:
    name: str = wire(STRING)
    expected: str | None = wire(STRING, nullable=0)  # the definition that is changed; None: there is none yet
    definition: str | None = wire(STRING, nullable=0)  # a JSON object; None: delete the organisation


@message(key=KEY, versions=(0, 0), flexible=0)
class AlterOrganisationsRequest:
    alterations: tuple[OrganisationAlteration, ...] = wire(Array(OrganisationAlteration))
    validate_only: bool = wire(BOOL, default=False)


@struct
class OrganisationAlterationResult:
    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)


@message(key=KEY, versions=(0, 0), flexible=0)
class AlterOrganisationsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[OrganisationAlterationResult, ...] = wire(Array(OrganisationAlterationResult))
