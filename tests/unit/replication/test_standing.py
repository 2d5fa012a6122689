"""The standing of a partition as a table: the image, what is known of the log, and what follows."""

from dataclasses import replace

import pytest

from moldau.metadata.image import NO_BROKER, PartitionState
from moldau.replication.standing import Obstacle, Role, Standing, assigned, removed

HERE = 1
SOLE = PartitionState(0, (1,), (1,), HERE, leader_epoch=4)
LED = PartitionState(0, (1, 2, 3), (1, 2, 3), HERE, leader_epoch=4)
LED_BY_LAST = replace(LED, isr=(1,))
LED_WITH_ELR = replace(LED, isr=(1,), elr=(2,))
FOLLOWED = replace(LED, leader=2)
LEADERLESS = replace(LED, leader=NO_BROKER)
OUT_OF_SYNC = replace(FOLLOWED, isr=(2, 3))

WHOLE = Standing()
FENCED = Standing(fenced_epoch=4)
FENCED_BEFORE = Standing(fenced_epoch=3)
REPLACED = Standing(log_replaced=True)
CORRUPT = Standing(corrupt=True)
LACKING = Standing(required_offset=11)  # the log ends at 10
COMPLETE = Standing(required_offset=10)


@pytest.mark.parametrize(
    ("standing", "state", "role", "obstacle"),
    [
        (WHOLE, SOLE, Role.SOLE, None),
        (WHOLE, LED, Role.LEADER, None),
        (WHOLE, FOLLOWED, Role.FOLLOWER, None),
        (WHOLE, LEADERLESS, Role.FOLLOWER, None),
        (FENCED, SOLE, Role.SOLE, None),
        (FENCED, LED, Role.LEADER, Obstacle.FENCED),
        (FENCED, LED_BY_LAST, Role.LEADER, Obstacle.FENCED),
        (FENCED, FOLLOWED, Role.FOLLOWER, None),
        (FENCED_BEFORE, LED, Role.LEADER, None),
        (REPLACED, LED, Role.LEADER, Obstacle.LOG_REPLACED),
        (REPLACED, LED_BY_LAST, Role.LEADER, Obstacle.LOG_REPLACED),
        (REPLACED, SOLE, Role.SOLE, Obstacle.LOG_REPLACED),
        (CORRUPT, LED, Role.LEADER, Obstacle.CORRUPT),
        (CORRUPT, LED_BY_LAST, Role.LEADER, None),
        (CORRUPT, SOLE, Role.SOLE, None),
        (LACKING, LED, Role.LEADER, Obstacle.LACKS_COMMITTED),
        (LACKING, LED_WITH_ELR, Role.LEADER, Obstacle.LACKS_COMMITTED),
        (LACKING, LED_BY_LAST, Role.LEADER, None),
        (LACKING, SOLE, Role.SOLE, None),
        (COMPLETE, LED, Role.LEADER, None),
        (replace(FENCED, log_replaced=True, corrupt=True), LED, Role.LEADER, Obstacle.FENCED),
        (replace(REPLACED, corrupt=True), LED, Role.LEADER, Obstacle.LOG_REPLACED),
        (replace(CORRUPT, required_offset=11), LED, Role.LEADER, Obstacle.CORRUPT),
    ],
)
@pytest.mark.parametrize("offline", [False, True])
def test_role_and_obstacle(
    standing: Standing, state: PartitionState, role: Role, obstacle: Obstacle | None, offline: bool
) -> None:
    found = assigned(replace(standing, offline=offline), HERE, None, state, 10)
    assert (found.role, found.obstacle) == (role, obstacle)
    assert found.leads == (role is not Role.FOLLOWER and obstacle is None)
    assert found.sole_online_replica == (role is Role.SOLE and obstacle is None and not offline)
    assert found.must_resign == (role is Role.LEADER and (obstacle is not None or offline))


@pytest.mark.parametrize(
    ("old", "new", "checkpointed", "required", "still_replaced"),
    [
        (None, FOLLOWED, 11, 11, True),
        (None, FOLLOWED, None, 7, True),
        (FOLLOWED, FOLLOWED, None, 7, True),
        (OUT_OF_SYNC, FOLLOWED, None, 0, False),
        (FOLLOWED, OUT_OF_SYNC, None, 7, True),
        (OUT_OF_SYNC, LED, None, 0, False),
    ],
    ids=["opened", "opened without a checkpoint", "unchanged", "joins the ISR", "leaves the ISR", "joins as leader"],
)
def test_what_is_required_of_the_log(
    old: PartitionState | None, new: PartitionState, checkpointed: int | None, required: int, still_replaced: bool
) -> None:
    found = assigned(Standing(log_replaced=True, required_offset=7), HERE, old, new, 10, checkpointed)
    assert (found.required_offset, found.log_replaced) == (required, still_replaced)


def test_a_leader_with_an_obstacle_keeps_what_is_required() -> None:
    assert assigned(LACKING, HERE, FOLLOWED, LED, 10).required_offset == 11
    assert assigned(LACKING, HERE, FOLLOWED, LED_BY_LAST, 10).required_offset == 0, "its log is what counts now"


def test_an_obstacle_is_judged_anew_with_each_image() -> None:
    resigned = assigned(FENCED, HERE, None, LED, 10)
    again = assigned(resigned, HERE, LED, replace(LED, leader_epoch=5), 10)
    assert again.leads
    assert again.fenced_epoch == 4


def test_a_removed_partition_leads_nothing() -> None:
    found = removed(assigned(WHOLE, HERE, None, SOLE, 10))
    assert (found.role, found.leads, found.sole_online_replica, found.must_resign) == (Role.NONE, False, False, False)
