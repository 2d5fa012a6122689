"""The inspector of a broker: its bounds, on a real partition with real workers."""

from pathlib import Path

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.broker.own_records import OwnRecords
from moldau.broker.peers import Peers
from moldau.broker.schemas import enforcement, nonconforming
from moldau.broker.schemas.dead_letter_topics import DeadLetterTopics
from moldau.broker.schemas.enforcement import SchemaInspector
from moldau.broker.schemas.follower import SchemasFollower
from moldau.broker.schemas.nonconforming import Nonconforming
from moldau.log.directory import LogDirectory
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage
from moldau.replication.appender import Appended
from moldau.replication.record_checks import Checked
from moldau.replication.record_workers import RecordWorkers, WorkerSettings
from moldau.replication.replicas import Replicas
from support.log.logs import NOW
from support.net.loops import run
from support.replication.partitions import Outcomes, a_partition, some

CONFIG = LogConfig(moldau_value_schema='{"type": "integer"}')


def an_inspector(directory: Path) -> SchemaInspector:
    def image() -> ClusterImage:
        return ClusterImage("cluster")

    async def create(_: object) -> None:
        return None

    replicas = Replicas(1, [LogDirectory.open(directory)], lambda _: CONFIG, lambda: NOW, 1000)
    peers = Peers(image, "PLAINTEXT")
    follower = SchemasFollower("_schemas", 1, replicas, peers, image)
    letters = DeadLetterTopics(OwnRecords("letters", 1, replicas, peers, image, lambda: NOW), image, create)
    return SchemaInspector(RecordWorkers(lambda: WorkerSettings(1, 30.0)), follower, letters, lambda _: True)


def test_batches_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        partition = a_partition(tmp_path / "log", CONFIG)
        partition.appender.inspector = inspector = an_inspector(tmp_path / "data")
        outcomes = Outcomes(partition)
        monkeypatch.setattr(enforcement, "HELD_AT_MOST", 10)
        assert outcomes.produce(some(b"1")) is None
        await partition.appender.queue.stop()
        (refused,) = outcomes.later
        assert isinstance(refused, Refusal)
        assert refused.error is WireError.REQUEST_TIMED_OUT
        monkeypatch.undo()
        assert outcomes.produce(some(b"1")) is None
        await partition.appender.queue.stop()
        assert outcomes.later[1:] == [Appended(0, -1, 0)]
        await inspector.stop()
        assert outcomes.produce(some(b"1")) is None
        await partition.appender.queue.stop()
        stopped = outcomes.later[-1]
        assert isinstance(stopped, Refusal)
        assert stopped.message == "The records could not be checked, as the broker is stopping."

    run("asyncio", main())


def test_a_subject_that_cannot_be_read_in_time_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enforcement, "CATCH_UP_S", 0.05)

    async def main() -> None:
        partition = a_partition(tmp_path / "log", LogConfig(moldau_value_schema="orders-value"))
        partition.appender.inspector = inspector = an_inspector(tmp_path / "data")
        outcomes = Outcomes(partition)

        async def stuck(_: float) -> bool:
            return False

        monkeypatch.setattr(SchemasFollower, "catch_up", lambda _, seconds: stuck(seconds))
        assert outcomes.produce(some(b"1")) is None
        await partition.appender.queue.stop()
        (refused,) = outcomes.later
        assert isinstance(refused, Refusal)
        assert refused.error is WireError.REQUEST_TIMED_OUT
        assert refused.message == "The schemas of topic cannot be read from their topic just now; retry."
        await inspector.stop()

    run("asyncio", main())


def test_warnings_are_bounded_in_rate_and_number(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nonconforming, "PARTITIONS_AT_MOST", 2)
    told = Nonconforming()
    checked = Checked(warned=2, first="Record 0: wrong")
    for _ in range(3):
        told.count("a-0", checked)
    assert len(caplog.records) == 1
    for name in ("b-0", "c-0"):
        told.count(name, checked)
    assert len(told) == 2
    told.count("a-0", Checked())
    assert len(caplog.records) == 3
