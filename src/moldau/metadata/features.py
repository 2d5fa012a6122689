"""Features: the levels that this release knows, those that a cluster has finalized, and decisions to change them.

A level says how the whole cluster behaves, so it rises when somebody asks for it, not when a broker is replaced
(KIP-584). A feature that was never finalized is at its lowest level. What a level means is in the rooms that ask for
it with `level`.
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
        # In Kafka the format of its metadata log, which is also how tools tell what release a cluster is like. There
        # is no such log here and so nothing to choose: it is always at the level of Kafka 4.3, whose APIs are served.
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
    """What a new cluster begins with."""
    return kept({feature.name: feature.highest for feature in FEATURES.values()})


def kept(levels: Mapping[str, int]) -> FeaturesFinalized:
    """Levels from elsewhere, as far as they are known here and can be chosen."""
    return FeaturesFinalized(
        {
            feature.name: min(levels[feature.name], feature.highest)
            for feature in FEATURES.values()
            if levels.get(feature.name, 0) > feature.lowest
        }
    )


def update(image: ClusterImage, updates: Iterable[FeatureUpdate]) -> FeaturesFinalized | Refusal:
    """All of the updates, or none. Rules and codes are those of Kafka; going down safely is always possible here."""
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
