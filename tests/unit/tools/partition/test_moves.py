"""Reassignments as a command carries them out: no broker needed."""

from pathlib import Path
from typing import cast

import pytest

from moldau.base.ids import TopicPartition
from moldau.client.admin import reassignments
from moldau.client.admin.cluster import Cluster
from moldau.client.admin.layout import Layout
from moldau.client.admin.reassignments import ThrottleRemoval
from moldau.client.admin.target import Target
from moldau.tools.cluster.app import tell_unplanned
from moldau.tools.common.failure import CommandError
from moldau.tools.common.formats import read_size
from moldau.tools.common.options import CommandContext
from moldau.tools.partition.app import _same_command
from moldau.tools.partition.moves import carry_out, read_plan_file, show_plan
from moldau.wire.messages.list_partition_reassignments import OngoingPartitionReassignment
from moldau.wire.messages.metadata import MetadataResponsePartition


def test_a_plan_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot read --file"):
        read_plan_file(tmp_path / "none.json")
    (tmp_path / "plan.json").write_bytes(b"\xff")
    with pytest.raises(CommandError, match="not UTF-8"):
        read_plan_file(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("10MB", 10_000_000), ("10 MiB", 10 * 1024**2), ("3k", 3000), ("2GiB", 2 * 1024**3)]
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "MB", "-1", "1TB", "1.5MB", "9" * 30])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        read_size(text)


class Calls:
    """Records the requests in place of sending them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        monkeypatch.setattr(reassignments, "throttle", lambda *_: self.made.append("throttle"))
        monkeypatch.setattr(reassignments, "reassign", lambda *_: self.made.append("reassign"))
        monkeypatch.setattr(reassignments, "watch", lambda *_: self._watch())
        monkeypatch.setattr(reassignments, "end_throttle", lambda *told: self._end(told[2]))

    def _watch(self) -> list[int]:
        self.made.append("wait")
        return [1, 0]

    def _end(self, topics: set[str]) -> ThrottleRemoval:
        self.made.append(f"end {sorted(topics)}")
        return ThrottleRemoval(True, (2,))

    def carry_out(self, plan: dict[TopicPartition, tuple[int, ...]], rate: int | None = None) -> None:
        carry_out(cast(Cluster, None), layout(), plan, rate, wait=True, again="the same")


def layout(*, moving: bool = False) -> Layout:
    """One partition with replicas 1 and 2; while it is moving, 2 is leaving."""
    row = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, replica_nodes=(1, 2), isr_nodes=(1, 2)
    )
    move = OngoingPartitionReassignment(partition_index=0, replicas=(1, 2), adding_replicas=(), removing_replicas=(2,))
    tp = TopicPartition("t", 0)
    return Layout("c", 1, {}, {tp: row}, frozenset(), {tp: move} if moving else {})


def test_a_broker_is_not_empty_while_its_replicas_move(capsys: pytest.CaptureFixture[str]) -> None:
    assert tell_unplanned(layout(), 3) == "Broker 3 has no replicas: it can be removed."
    moving = layout(moving=True)
    assert "still has t:0" in tell_unplanned(moving, 2)
    show_plan(CommandContext(Target("localhost"), json=False), moving, {})
    assert capsys.readouterr().out == "Nothing else has to move. Under way: 1 reassignment.\n"


def test_a_throttle_ends_with_the_moves(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls = Calls(monkeypatch)
    calls.carry_out({TopicPartition("t", 0): (2, 1)}, 5)
    assert calls.made == ["throttle", "reassign", "wait", "end ['t']"]
    assert "Broker 2 does not answer" in capsys.readouterr().err


def test_a_throttle_of_moves_that_finished_unwatched_ends_with_the_next_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = Calls(monkeypatch)
    calls.carry_out({})
    assert calls.made == ["end ['t']"]


def test_the_command_to_go_on_with_names_what_this_one_named() -> None:
    assert _same_command((), None, None) == "reassign --run"
    assert _same_command(["a:0,1", "b"], "1,2", None) == "reassign --run --topic a:0,1 --topic b --brokers 1,2"
    assert _same_command((), None, Path("my plan.json")) == "reassign --run --file 'my plan.json'"
