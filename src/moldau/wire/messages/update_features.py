"""UpdateFeatures: change finalized feature levels (KIP-584).

Version 1 adds the upgrade type and validate_only (KIP-778); version 0 has allow_downgrade, here a safe downgrade.
Version 2 returns one error without results per feature (KIP-1022).
"""

from moldau.wire.declare import BOOL, INT8, INT16, INT32, STRING, Array, message, older_form, struct, wire
from moldau.wire.primitives import Unencodable

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@struct
class FeatureUpdate:
    feature: str = wire(STRING)
    max_version_level: int = wire(INT16)  # below 1: delete the feature
    upgrade_type: int = wire(INT8, default=UPGRADE)


@message(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesRequest:
    timeout_ms: int = wire(INT32, default=60_000)
    feature_updates: tuple[FeatureUpdate, ...] = wire(Array(FeatureUpdate))
    validate_only: bool = wire(BOOL, default=False)


@struct
class FeatureUpdateV0:
    feature: str = wire(STRING)
    max_version_level: int = wire(INT16)
    allow_downgrade: bool = wire(BOOL)


@older_form(of=UpdateFeaturesRequest, until=0)
class UpdateFeaturesRequestV0:
    timeout_ms: int = wire(INT32)
    feature_updates: tuple[FeatureUpdateV0, ...] = wire(Array(FeatureUpdateV0))

    def to_newest(self) -> UpdateFeaturesRequest:
        updates = tuple(
            FeatureUpdate(
                feature=update.feature,
                max_version_level=update.max_version_level,
                upgrade_type=SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE,
            )
            for update in self.feature_updates
        )
        return UpdateFeaturesRequest(timeout_ms=self.timeout_ms, feature_updates=updates)

    @classmethod
    def from_newest(cls, newest: UpdateFeaturesRequest) -> "UpdateFeaturesRequestV0":
        if newest.validate_only or any(update.upgrade_type == UNSAFE_DOWNGRADE for update in newest.feature_updates):
            raise Unencodable("UpdateFeaturesRequest before version 1 cannot only try, nor downgrade unsafely")
        updates = tuple(
            FeatureUpdateV0(
                feature=update.feature,
                max_version_level=update.max_version_level,
                allow_downgrade=update.upgrade_type == SAFE_DOWNGRADE,
            )
            for update in newest.feature_updates
        )
        return cls(timeout_ms=newest.timeout_ms, feature_updates=updates)


@struct
class FeatureUpdateResult:
    feature: str = wire(STRING)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=0, default=None)


@message(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    results: tuple[FeatureUpdateResult, ...] = wire(Array(FeatureUpdateResult), until=1, default=(), ignorable=True)
