"""Features over the wire: announced in ApiVersions, changed by UpdateFeatures and by Kafka's own tool, kept on disk."""

import re
import sqlite3
from typing import Any

import pytest
from kafka.protocol.admin import UpdateFeaturesRequest
from kafka.protocol.metadata import ApiVersionsRequest

from support.brokers.processes import AnyBroker, BrokerProcess, StartBroker
from support.clients.raw import RawClient
from support.kafka import jvm

NONE, INVALID_UPDATE_VERSION = 0, 95
UPGRADE, SAFE_DOWNGRADE = 1, 2
NEW = {"group.version": 1, "transaction.version": 2}

needs_java = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")


def announced(broker: AnyBroker, version: int = 4) -> Any:
    with RawClient(broker.bootstrap) as raw:
        return raw.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1.0"), version)


def finalized(broker: AnyBroker) -> tuple[int, dict[str, int]]:
    """The epoch, and the level of each feature; metadata.version, which is always there, aside."""
    answer = announced(broker)
    levels = {row.name: row.max_version_level for row in answer.finalized_features}
    assert levels.pop("metadata.version") > 0
    return answer.finalized_features_epoch, levels


def update(broker: AnyBroker, *wishes: tuple[str, int, int], version: int = 2, only_try: bool = False) -> Any:
    update_type = UpdateFeaturesRequest.FeatureUpdateKey
    updates = [
        update_type(feature=name, max_version_level=level, upgrade_type=way, allow_downgrade=way != UPGRADE)
        for name, level, way in wishes
    ]
    with RawClient(broker.bootstrap) as raw:
        return raw.ask(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=updates, validate_only=only_try), version)


def test_api_versions_announces_features(broker: AnyBroker) -> None:
    newest, older = announced(broker, 4), announced(broker, 3)
    supported = {row.name: (row.min_version, row.max_version) for row in newest.supported_features}
    assert {name: supported[name] for name in NEW} == {"group.version": (0, 1), "transaction.version": (0, 2)}
    # KAFKA-17011: version 3 cannot say that a feature may be off.
    assert [row.name for row in older.supported_features] == ["metadata.version"]
    for answer in (older, newest):
        assert {row.name: row.max_version_level for row in answer.finalized_features}.items() >= NEW.items()
        assert all(row.min_version_level == row.max_version_level for row in answer.finalized_features)
        assert answer.finalized_features_epoch >= 0
    assert not announced(broker, 2).finalized_features


@pytest.mark.parametrize("version", range(3))
def test_levels_survive_a_restart_and_the_epoch_rises(start_broker: StartBroker, version: int) -> None:
    own = start_broker()
    begun, levels = finalized(own)
    assert levels == NEW
    answer = update(
        own, ("transaction.version", 1, SAFE_DOWNGRADE), ("group.version", 0, SAFE_DOWNGRADE), version=version
    )
    assert answer.error_code == NONE
    if version < 2:
        assert {row.feature: row.error_code for row in answer.results} == {"transaction.version": 0, "group.version": 0}
    lowered, levels = finalized(own)
    assert levels == {"transaction.version": 1}
    own.kill()
    own.start()
    assert finalized(own) == (lowered, {"transaction.version": 1}), "a level that was taken back does not come back"
    assert update(own, ("transaction.version", 2, UPGRADE), version=version).error_code == NONE
    raised, levels = finalized(own)
    assert levels == {"transaction.version": 2}
    assert begun < lowered < raised


def test_trying_and_failing_change_nothing(broker: AnyBroker) -> None:
    before = finalized(broker)
    assert update(broker, ("group.version", 0, SAFE_DOWNGRADE), only_try=True).error_code == NONE
    for wish in (("group.version", 2, UPGRADE), ("nosuch.version", 1, UPGRADE), ("transaction.version", 1, UPGRADE)):
        for only_try in (False, True):
            answer = update(broker, ("group.version", 0, SAFE_DOWNGRADE), wish, only_try=only_try)
            assert answer.error_code == INVALID_UPDATE_VERSION
            assert wish[0] in answer.error_message
    assert finalized(broker) == before


def test_a_store_of_a_release_without_features_gets_them(start_broker: StartBroker) -> None:
    own = start_broker()
    own.stop()
    with sqlite3.connect(own.data / "moldau-metadata.sqlite") as store:
        store.execute("UPDATE node SET data = ? WHERE path = '/feature'", (b'{"version":1,"features":{},"epoch":-1}',))
    store.close()
    own.start()
    epoch, levels = finalized(own)
    assert levels == NEW
    assert epoch >= 0


def features(broker: AnyBroker, *arguments: str, code: int = 0) -> str:
    tool = "org.apache.kafka.tools.FeatureCommand"
    done = jvm.run(tool, "--bootstrap-server", broker.bootstrap, *arguments)
    told = done.stdout + done.stderr
    assert done.returncode == code, told
    return told


def described(broker: BrokerProcess) -> dict[str, tuple[str, str, str]]:
    """What the tool shows: lowest, highest and finalized level by feature."""
    row = r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)"
    return {name: (low, high, level) for name, low, high, level in re.findall(row, features(broker, "describe"))}


@needs_java
def test_kafkas_feature_tool(start_broker: StartBroker) -> None:
    own = start_broker()
    release = "4.3-IV0"
    assert described(own) == {
        "group.version": ("0", "1", "1"),
        "metadata.version": (release, release, release),
        "transaction.version": ("0", "2", "2"),
    }
    assert "can be downgraded" in features(own, "downgrade", "--feature", "transaction.version=1", "--dry-run")
    assert "was downgraded to 1" in features(own, "downgrade", "--feature", "transaction.version=1")
    assert "was disabled" in features(own, "disable", "--feature", "group.version")
    assert {name: row[2] for name, row in described(own).items()} == {
        "group.version": "0",
        "metadata.version": release,
        "transaction.version": "1",
    }
    both = ("--feature", "group.version=1", "--feature", "transaction.version=2", "--feature", "metadata.version=30")
    assert features(own, "upgrade", *both).count("was upgraded") == 3
    refused = features(own, "upgrade", "--feature", "group.version=7", code=1)
    assert "levels are 0 to 1" in refused
    assert "1 out of 1 operation(s) failed" in refused
    refused = features(own, "upgrade", "--release-version", "4.3", code=1)
    assert "has no such feature" in refused, "a release of Kafka has features that are not here"
