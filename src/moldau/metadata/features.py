"""Feature levels (KIP-584): those that this release supports, those that a cluster has finalized, and updates.

A level describes the whole cluster, so it rises by an UpdateFeatures request, not when a broker is upgraded. A feature
that was never finalized is at its lowest level. Its meaning is up to the callers of `level`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moldau.base.errors import Refusal, WireError
from moldau.metadata.changes import FeaturesFinalized
from moldau.metadata.image import ClusterImage
from moldau.wire.messages.update_features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, FeatureUpdate

GROUP_VERSION = "group.version"
METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    lowest: int
    highest: int  # also the level of a new cluster


FEATURES = {
    feature.name: feature
    for feature in (
        Feature(GROUP_VERSION, 0, 1),  # 1: the consumer protocol (KIP-848)
        # In Kafka the format of the metadata log; tools also read the cluster's release from it. There is no such log
        # here, so it is fixed at the level of Kafka 4.3.
        Feature(METADATA_VERSION, 30, 30),
        Feature(TRANSACTION_VERSION, 0, 2),  # 1: only the format of records; 2: an epoch per transaction (KIP-890)
    )
}


def level(image: ClusterImage, name: str) -> int:
    return image.features.get(name, FEATURES[name].lowest)


def finalized(image: ClusterImage) -> dict[str, int]:
    """The features that are on, with their levels; 0 is off."""
    return {name: found for name in FEATURES if (found := level(image, name))}


def newest() -> FeaturesFinalized:
    """The levels of a new cluster."""
    return kept({feature.name: feature.highest for feature in FEATURES.values()})


def kept(levels: Mapping[str, int]) -> FeaturesFinalized:
    """Of these levels, those that this release supports and that can be chosen."""
    return FeaturesFinalized(
        {
            feature.name: min(levels[feature.name], feature.highest)
            for feature in FEATURES.values()
            if levels.get(feature.name, 0) > feature.lowest
        }
    )


def update(image: ClusterImage, updates: Iterable[FeatureUpdate]) -> FeaturesFinalized | Refusal:
    """All of the updates, or none. Rules and codes are those of Kafka; a safe downgrade is always possible here."""
    levels = finalized(image)
    for wanted in updates:
        problem = _problem(wanted, levels.get(wanted.feature, 0))
        if problem is not None:
            message = f"No feature was changed: {wanted.feature} cannot be set to {wanted.max_version_level}, {problem}"
            return Refusal(WireError.INVALID_UPDATE_VERSION, message)
        levels[wanted.feature] = wanted.max_version_level
    return kept(levels)


def _problem(wanted: FeatureUpdate, current: int) -> str | None:
    """What is wrong with an update, as the end of a sentence."""
    feature = FEATURES.get(wanted.feature)
    if feature is None:
        return "as this cluster has no such feature."
    if wanted.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"as {wanted.upgrade_type} is no way to change a level."
    if not feature.lowest <= wanted.max_version_level <= feature.highest:
        return f"as its levels are {feature.lowest} to {feature.highest}."
    if wanted.max_version_level < current and wanted.upgrade_type == UPGRADE:
        return f"which is below its level {current}, by an upgrade: ask for a downgrade."
    if wanted.max_version_level > current and wanted.upgrade_type != UPGRADE:
        return f"which is above its level {current}, by a downgrade: ask for an upgrade."
    return None
