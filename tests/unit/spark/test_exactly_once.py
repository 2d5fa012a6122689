"""When a task of an exactly-once sink must not go on: every pair of control offsets that it can find."""

import pytest

pytest.importorskip("aiokafka", reason="needs the extra: pip install '.[spark]'")
pytest.importorskip("pandas", reason="needs the extra: pip install '.[spark]'")

from moldau.client.admin.groups import is_control_group
from moldau.spark.sink.control_offsets import BatchCommit, ControlOffsets, TaskCommit
from moldau.spark.sink.exactly_once import WriteTask, refusal

CONTROL = ControlOffsets("q", "s", "out")


def test_groups_of_sinks_are_told_from_others() -> None:
    """`moldau group list` hides them."""
    control = ControlOffsets("0a5f6ba1-53d3-4f5e-8b0b-6bb0fb3b0f4a", "my-sink", "out")
    assert is_control_group(control.task_group(0))
    assert is_control_group(control.task_group(12))
    assert is_control_group(control.driver_group)
    for name in ("moldau-orders-0", "orders", f"{control.driver_group}-2x", f"x{control.driver_group}"):
        assert not is_control_group(name)


def task(batch: int, index: int = 0, every_batch: bool = True) -> WriteTask:
    return WriteTask(CONTROL, index, batch, "run", every_batch)


def done(batch: int) -> TaskCommit:
    return TaskCommit(batch, 1, "d")


def finished(batch: int, tasks: int = 2) -> BatchCommit:
    return BatchCommit(batch, tasks, "run")


GOES_ON = [
    (task(0), None, None),  # the first batch
    (task(1), done(0), finished(0)),  # the next one
    (task(1), done(1), finished(0)),  # repeated: the task had committed, the batch was not finished
    (task(1), done(1), finished(1)),  # repeated: Spark did not hear that it was
    (task(0), done(0), None),
    (task(5, index=2), None, finished(4)),  # more tasks than before
    (task(5, index=2), done(1), finished(4)),  # and once there had been as many
    (task(5, every_batch=False), done(2), finished(2)),  # a foreachBatch that did not call the sink for some batches
]
STOPS = [
    (task(1), None, None, "there is no offset of the group moldau-q-s-batches"),
    (task(7), done(4), finished(4), "the last one that was finished with exactly-once is 4"),
    (task(5), None, finished(4), "the offset of the group moldau-q-s-0 does not say so"),
    (task(5), done(3), finished(4), "the offset of the group moldau-q-s-0 does not say so"),
    (task(5, every_batch=False), None, None, "there is no offset of the group moldau-q-s-batches"),
    (task(4), None, finished(4), "the offset of the group moldau-q-s-0 does not say so"),
]
NEVER = [
    (task(4), done(5), finished(4), "batch 4 is to be written, but batch 5 of this query is already written"),
    (task(4), None, finished(5), "batch 4 is to be written, but batch 5 of this query is already written"),
    (task(4, index=2), None, finished(4), "batch 4 was finished with 2 tasks before, and now has a task 2"),
    (task(4, index=2), done(3), finished(4), "batch 4 was finished with 2 tasks before, and now has a task 2"),
]


@pytest.mark.parametrize(("at", "own", "last"), GOES_ON)
def test_it_goes_on(at: WriteTask, own: TaskCommit | None, last: BatchCommit | None) -> None:
    assert refusal(at, own, last, fail_on_loss=True) is None


@pytest.mark.parametrize(("at", "own", "last", "why"), STOPS)
def test_lost_control_offsets_stop_it_unless_the_user_says_otherwise(
    at: WriteTask, own: TaskCommit | None, last: BatchCommit | None, why: str
) -> None:
    said = refusal(at, own, last, fail_on_loss=True) or ""
    assert why in said
    assert "failOnControlLoss=false" in said
    assert refusal(at, own, last, fail_on_loss=False) is None


@pytest.mark.parametrize(("at", "own", "last", "why"), NEVER)
def test_nobody_can_wish_for_doubles(at: WriteTask, own: TaskCommit | None, last: BatchCommit | None, why: str) -> None:
    for fail_on_loss in (True, False):
        assert why in (refusal(at, own, last, fail_on_loss) or "")


def test_names_of_groups_cannot_meet() -> None:
    names = [
        group
        for sink in ("a", "a-1", "a-batches", "a-batches-1")
        for control in [ControlOffsets("q", sink, "out")]
        for group in (control.driver_group, control.task_group(1), control.task_group(11))
    ]
    assert len(set(names)) == len(names)
