"""Levels of features: what a cluster starts with, what it takes over, and how the levels may change."""

from collections.abc import Mapping

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.metadata.changes import FeaturesFinalized, apply
from moldau.metadata.features import finalized, kept, level, newest, update
from moldau.metadata.image import ClusterImage
from moldau.wire.messages.update_features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, FeatureUpdate

NEW = apply(ClusterImage(version=6), newest())


def ask(image: ClusterImage, *wishes: tuple[str, int, int]) -> FeaturesFinalized | Refusal:
    return update(
        image, [FeatureUpdate(feature=name, max_version_level=wanted, upgrade_type=way) for name, wanted, way in wishes]
    )


def levels(image: ClusterImage) -> tuple[int, int]:
    return level(image, "group.version"), level(image, "transaction.version")


def test_a_new_cluster_has_the_newest_of_all() -> None:
    assert levels(NEW) == (1, 2)
    assert finalized(NEW) == {"group.version": 1, "metadata.version": 30, "transaction.version": 2}
    assert NEW.features_epoch == 7


def test_what_was_never_finalized_is_at_its_lowest_level() -> None:
    assert levels(ClusterImage()) == (0, 0)
    assert finalized(ClusterImage()) == {"metadata.version": 30}


@pytest.mark.parametrize(
    ("brought", "taken"),
    [
        ({"metadata.version": 21}, {}),
        ({"group.version": 1, "share.version": 1, "metadata.version": 30}, {"group.version": 1}),
        ({"transaction.version": 1, "group.version": 0}, {"transaction.version": 1}),
        ({"transaction.version": 9}, {"transaction.version": 2}),
    ],
)
def test_levels_of_another_cluster_are_kept_where_they_mean_something(
    brought: Mapping[str, int], taken: Mapping[str, int]
) -> None:
    assert kept(brought) == FeaturesFinalized(taken)


@pytest.mark.parametrize("way", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_levels_go_down_and_up_again(way: int) -> None:
    down = ask(NEW, ("transaction.version", 1, way), ("group.version", 0, way))
    assert isinstance(down, FeaturesFinalized)
    lowered = apply(NEW, down)
    assert levels(lowered) == (0, 1)
    assert finalized(lowered) == {"metadata.version": 30, "transaction.version": 1}
    up = ask(lowered, ("group.version", 1, UPGRADE))
    assert isinstance(up, FeaturesFinalized)
    raised = apply(lowered, up)
    assert levels(raised) == (1, 1)
    assert NEW.features_epoch < lowered.features_epoch < raised.features_epoch


@pytest.mark.parametrize("way", [UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_the_level_that_a_feature_has_is_fine(way: int) -> None:
    assert ask(NEW, *((name, found, way) for name, found in finalized(NEW).items())) == newest()


@pytest.mark.parametrize(
    ("feature", "wanted", "way", "why"),
    [
        ("nosuch.version", 1, UPGRADE, "no such feature"),
        ("nosuch.version", 0, SAFE_DOWNGRADE, "no such feature"),
        ("share.version", 1, UPGRADE, "no such feature"),
        ("group.version", 2, UPGRADE, "levels are 0 to 1"),
        ("group.version", -1, SAFE_DOWNGRADE, "levels are 0 to 1"),
        ("metadata.version", 29, SAFE_DOWNGRADE, "levels are 30 to 30"),
        ("metadata.version", 0, UNSAFE_DOWNGRADE, "levels are 30 to 30"),
        ("transaction.version", 1, UPGRADE, "ask for a downgrade"),
        ("transaction.version", 0, 0, "no way to change"),
        ("transaction.version", 2, 4, "no way to change"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(feature: str, wanted: int, way: int, why: str) -> None:
    refused = ask(NEW, ("group.version", 0, SAFE_DOWNGRADE), (feature, wanted, way))
    assert isinstance(refused, Refusal)
    assert refused.error is WireError.INVALID_UPDATE_VERSION
    assert why in refused.message
    assert feature in refused.message


def test_a_downgrade_does_not_go_up() -> None:
    refused = ask(ClusterImage(), ("transaction.version", 2, SAFE_DOWNGRADE))
    assert isinstance(refused, Refusal)
    assert "ask for an upgrade" in refused.message
