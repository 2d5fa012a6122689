"""Plans in files, and what health is: no broker needed."""

import json
from pathlib import Path
from typing import cast

import pytest

from moldau.tools.cluster_health import diagnose
from moldau.tools.common.failure import CommandError
from moldau.tools.common.formats import read_size
from moldau.tools.partition import moves as replica_moves
from moldau.tools.partition.app import _same_command
from moldau.tools.partition.moves import carry_out, plan_document, read_plan
from moldau.tools.places import Place
from moldau.tools.replica_admin import Layout
from moldau.tools.requests import Cluster
from moldau.wire.messages.list_partition_reassignments import OngoingPartitionReassignment
from moldau.wire.messages.metadata import MetadataResponseBroker, MetadataResponsePartition


def test_a_plan_is_read_as_it_is_written(tmp_path: Path) -> None:
    plan = {Place("orders", 0): (1, 2), Place("orders", 1): (3,)}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan_document(plan)))
    assert read_plan(file) == plan


def test_a_plan_of_kafkas_own_tool(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1],"log_dirs":["any","any"]}]}'
    )
    assert read_plan(file) == {Place("t", 0): (2, 1)}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[]", "no plan"),
        ('{"partitions": 5}', "no plan"),
        ('{"partitions": [5]}', "no partition of a plan"),
        ('{"partitions": [{"topic": "t", "partition": true, "replicas": [1]}]}', "no partition of a plan"),
        ('{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', "no partition of a plan"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "no partition of a plan"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "no partition of a plan"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}', "log_dirs"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "twice",
        ),
    ],
)
def test_what_is_no_plan(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(CommandError, match=word):
        read_plan(file)


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("10MB", 10_000_000), ("10 MiB", 10 * 1024**2), ("3k", 3000), ("2GiB", 2 * 1024**3)]
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "MB", "-1", "1TB", "1.5MB", "9" * 30])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        read_size(text)


def layout(*partitions: MetadataResponsePartition, adding: tuple[int, ...] = ()) -> Layout:
    places = {Place("t", index): each for index, each in enumerate(partitions)}
    brokers = {id_: MetadataResponseBroker(node_id=id_, host="h", port=1) for id_ in (1, 2)}
    moving = OngoingPartitionReassignment(partition_index=0, replicas=(), adding_replicas=adding, removing_replicas=())
    return Layout("c", 1, brokers, places, frozenset(), {Place("t", 0): moving} if adding else {})


def partition(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=leader, replica_nodes=replicas, isr_nodes=isr
    )


def test_a_cluster_that_is_well() -> None:
    found = diagnose(layout(partition(1, (1, 2), (2, 1))), {"t": 2})
    assert found.well
    assert list(found.problems()) == []


def test_what_can_be_wrong() -> None:
    found = diagnose(layout(partition(-1, (1, 2), ()), partition(1, (1, 3), (1,))), {"t": 2})
    assert not found.well
    assert found.offline == (Place("t", 0),)
    assert found.below_min_isr == found.under_replicated == (Place("t", 0), Place("t", 1))
    assert found.missing == (3,)


def test_no_more_in_sync_replicas_are_asked_for_than_there_are_replicas() -> None:
    assert diagnose(layout(partition(1, (1,), (1,))), {"t": 2}).well, "brokers take acks=all"
    assert diagnose(layout(partition(1, (1, 2), (1,))), {"t": 3}).below_min_isr == (Place("t", 0),)


class Calls:
    """In place of what would be asked of brokers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, moving: tuple[Place, ...] = ()) -> None:
        self.made: list[str] = []
        self.refusal: CommandError | None = None
        monkeypatch.setattr(replica_moves, "throttle", lambda *_: self.made.append("throttle"))
        monkeypatch.setattr(replica_moves, "reassign", lambda *_: self._reassign())
        monkeypatch.setattr(replica_moves, "await_done", lambda *_: self.made.append("wait"))
        monkeypatch.setattr(replica_moves, "read_ongoing", lambda *_: moving)
        monkeypatch.setattr(replica_moves, "end_throttle", lambda *told: self.made.append(f"end {sorted(told[2])}"))

    def _reassign(self) -> None:
        self.made.append("reassign")
        if self.refusal:
            raise self.refusal

    def carry_out(self, plan: dict[Place, tuple[int, ...]], rate: int | None = None) -> None:
        found = layout(partition(1, (1, 2), (1, 2)))
        carry_out(cast(Cluster, None), found, plan, rate, wait=True, again="the same")


def test_a_throttle_ends_with_the_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    calls.carry_out({Place("t", 0): (2, 1)}, 5)
    assert calls.made == ["throttle", "reassign", "wait", "end ['t']"]


def test_a_throttle_of_moves_that_nobody_watched_ends_with_the_next_command(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    calls.carry_out({})
    assert calls.made == ["end ['t']"]


@pytest.mark.parametrize("moving", [(), (Place("t", 1),)])
def test_moves_that_are_refused_leave_no_throttle(monkeypatch: pytest.MonkeyPatch, moving: tuple[Place, ...]) -> None:
    calls = Calls(monkeypatch, moving=moving)
    calls.refusal = CommandError("no")
    with pytest.raises(CommandError, match="no"):
        calls.carry_out({Place("t", 0): (2, 2)}, 5)
    assert calls.made == ["throttle", "reassign", *(["end ['t']"] if not moving else [])]


def test_the_command_to_go_on_with_names_what_this_one_named() -> None:
    assert _same_command((), None, None) == "reassign --run"
    assert _same_command(["a:0,1", "b"], "1,2", None) == "reassign --run --topic a:0,1 --topic b --brokers 1,2"
    assert _same_command((), None, Path("my plan.json")) == "reassign --run --file 'my plan.json'"


def test_a_replica_that_is_still_coming_is_not_missed() -> None:
    found = diagnose(layout(partition(1, (1, 2), (1,)), adding=(2,)), {"t": 1})
    assert found.well
    assert found.moving == (Place("t", 0),)
