"""Plans as JSON, begin and cancel, and health: no broker needed."""

import json
from typing import cast

import pytest

from moldau.base.ids import TopicPartition
from moldau.client.admin import reassignments
from moldau.client.admin.cluster import Cluster
from moldau.client.admin.errors import AdminError, InvalidArgument
from moldau.client.admin.health import diagnose
from moldau.client.admin.layout import Layout
from moldau.client.admin.reassignments import begin, plan_document, read_plan, watch
from moldau.wire.messages.list_partition_reassignments import OngoingPartitionReassignment
from moldau.wire.messages.metadata import MetadataResponseBroker, MetadataResponsePartition


def test_a_plan_is_read_as_it_is_written() -> None:
    plan = {TopicPartition("orders", 0): (1, 2), TopicPartition("orders", 1): (3,)}
    assert read_plan(json.dumps(plan_document(plan)), "plan.json") == plan


def test_a_plan_of_kafkas_own_tool() -> None:
    text = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1],"log_dirs":["any","any"]}]}'
    assert read_plan(text, "plan.json") == {TopicPartition("t", 0): (2, 1)}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[]", "not a plan"),
        ('{"partitions": 5}', "not a plan"),
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
def test_what_is_no_plan(text: str, word: str) -> None:
    with pytest.raises(InvalidArgument, match=word):
        read_plan(text, "plan.json")


def layout(*partitions: MetadataResponsePartition, adding: tuple[int, ...] = ()) -> Layout:
    by_partition = {TopicPartition("t", index): each for index, each in enumerate(partitions)}
    brokers = {id_: MetadataResponseBroker(node_id=id_, host="h", port=1) for id_ in (1, 2)}
    moving = OngoingPartitionReassignment(partition_index=0, replicas=(), adding_replicas=adding, removing_replicas=())
    return Layout("c", 1, brokers, by_partition, frozenset(), {TopicPartition("t", 0): moving} if adding else {})


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
    assert found.offline == (TopicPartition("t", 0),)
    assert found.below_min_isr == found.under_replicated == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert found.missing == (3,)


def test_no_more_in_sync_replicas_are_asked_for_than_there_are_replicas() -> None:
    assert diagnose(layout(partition(1, (1,), (1,))), {"t": 2}).well, "brokers take acks=all"
    assert diagnose(layout(partition(1, (1, 2), (1,))), {"t": 3}).below_min_isr == (TopicPartition("t", 0),)


class Calls:
    """Records the requests in place of sending them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, moving: tuple[TopicPartition, ...] = ()) -> None:
        self.made: list[str] = []
        self.refusal: AdminError | None = None
        monkeypatch.setattr(reassignments, "throttle", lambda *_: self.made.append("throttle"))
        monkeypatch.setattr(reassignments, "reassign", lambda *_: self._reassign())
        monkeypatch.setattr(reassignments, "read_ongoing", lambda *_: moving)
        monkeypatch.setattr(reassignments, "end_throttle", lambda *told: self.made.append(f"end {sorted(told[2])}"))

    def _reassign(self) -> None:
        self.made.append("reassign")
        if self.refusal:
            raise self.refusal


@pytest.mark.parametrize("moving", [(), (TopicPartition("t", 1),)])
def test_moves_that_are_refused_leave_no_throttle(
    monkeypatch: pytest.MonkeyPatch, moving: tuple[TopicPartition, ...]
) -> None:
    calls = Calls(monkeypatch, moving=moving)
    calls.refusal = AdminError("no")
    with pytest.raises(AdminError, match="no"):
        begin(cast(Cluster, None), layout(partition(1, (1, 2), (1, 2))), {TopicPartition("t", 0): (2, 2)}, 5)
    assert calls.made == ["throttle", "reassign", *(["end ['t']"] if not moving else [])]


def test_watching_tells_every_change_and_ends_with_none_left(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    answers = [{a, b}, {a, b}, OSError("restarting"), {b}, set()]

    def read_ongoing(_: Cluster) -> set[TopicPartition]:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(reassignments, "read_ongoing", read_ongoing)
    monkeypatch.setattr(reassignments, "POLL_S", 0)
    assert list(watch(cast(Cluster, None), [a, b])) == [2, 1, 0]


def test_a_replica_that_is_still_coming_is_not_missed() -> None:
    found = diagnose(layout(partition(1, (1, 2), (1,)), adding=(2,)), {"t": 1})
    assert found.well
    assert found.moving == (TopicPartition("t", 0),)
