"""Reassignment: how a partition moves to other replicas, step by step, and what is refused as Kafka refuses it."""

from uuid import uuid4

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.metadata.changes import ChangeSet, PartitionChanged, TopicCreated, apply
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState
from moldau.metadata.reassignment import cancel, completed, elected, original_of, reassign, target_of

BROKERS = {i: Broker(i, {}) for i in range(1, 7)}


def image_of(state: PartitionState, gone: tuple[int, ...] = ()) -> ClusterImage:
    brokers = {id_: broker for id_, broker in BROKERS.items() if id_ not in gone}
    return apply(ClusterImage(brokers=brokers), TopicCreated("orders", uuid4(), (state,), {}))


def on(*replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None, **more) -> PartitionState:
    return PartitionState(
        0, replicas, replicas if isr is None else isr, replicas[0] if leader is None else leader, **more
    )


def after(image: ClusterImage, change: object) -> PartitionState:
    assert isinstance(change, PartitionChanged | ChangeSet), change
    state = apply(image, change).partition("orders", 0)
    assert state is not None
    return state


def test_a_move_begins_with_all_replicas_of_both_sides() -> None:
    image = image_of(on(3, 1, 2))
    begun = after(image, reassign(image, "orders", 0, (5, 4, 1)))
    assert begun.replicas == (5, 4, 1, 2, 3)
    assert (begun.adding, begun.removing) == ((4, 5), (2, 3))
    assert (begun.isr, begun.leader, begun.leader_epoch) == ((3, 1, 2), 3, 0)
    assert target_of(begun) == (5, 4, 1)
    assert original_of(begun) == (1, 2, 3)


def test_a_move_is_done_when_all_that_come_are_in_the_isr() -> None:
    image = image_of(on(1, 2))
    begun = after(image, reassign(image, "orders", 0, (3, 4)))
    assert completed(begun, (1, 2, 3)) is None
    done = completed(begun, (1, 2, 3, 4))
    assert done is not None
    assert (done.replicas, done.isr, done.adding, done.removing) == ((3, 4), (3, 4), (), ())
    assert elected(image, done).leader == 3


def test_one_that_stays_need_not_be_in_sync() -> None:
    image = image_of(on(1, 2, isr=(1,)))
    begun = after(image, reassign(image, "orders", 0, (2, 3)))
    assert completed(begun, (1, 3)) is not None


def test_fewer_replicas_are_a_matter_of_one_change() -> None:
    image = image_of(on(1, 2, 3))
    done = after(image, reassign(image, "orders", 0, (2, 3)))
    assert (done.replicas, done.isr, done.adding, done.removing) == ((2, 3), (2, 3), (), ())
    assert (done.leader, done.leader_epoch) == (2, 1)


def test_who_is_left_must_have_the_records() -> None:
    image = image_of(on(1, 2, isr=(1,)), gone=(2,))
    begun = after(image, reassign(image, "orders", 0, (2,)))
    assert (begun.replicas, begun.removing) == ((2, 1), (1,))
    assert completed(begun, (1, 2)) is not None


def test_more_replicas_leave_leader_and_epoch_alone() -> None:
    image = image_of(on(1))
    begun = after(image, reassign(image, "orders", 0, (1, 2, 3)))
    assert (begun.replicas, begun.adding, begun.leader, begun.leader_epoch) == ((1, 2, 3), (2, 3), 1, 0)


def test_another_order_is_done_at_once() -> None:
    image = image_of(on(1, 2, 3))
    done = after(image, reassign(image, "orders", 0, (3, 2, 1)))
    assert (done.replicas, done.leader, done.leader_epoch) == ((3, 2, 1), 1, 0)
    assert reassign(image, "orders", 0, (1, 2, 3)) == ChangeSet(())


def test_cancel_goes_back() -> None:
    image = image_of(on(1, 2))
    begun = after(image, reassign(image, "orders", 0, (3, 4)))
    midway = image_of(PartitionState(0, begun.replicas, (1, 2, 3), 3, 5, adding=begun.adding, removing=begun.removing))
    back = after(midway, cancel(midway, "orders", 0))
    assert (back.replicas, back.isr, back.adding, back.removing) == ((1, 2), (1, 2), (), ())
    assert (back.leader, back.leader_epoch) == (1, 6)


def test_cancel_forgets_a_second_target_too() -> None:
    image = image_of(on(1, 2))
    first = after(image, reassign(image, "orders", 0, (3, 4)))
    second = after(image_of(first), reassign(image_of(first), "orders", 0, (4, 5)))
    assert second.replicas == (4, 5, 1, 2, 3)
    assert (second.adding, second.removing) == ((3, 4, 5), (1, 2, 3))
    assert completed(second, (1, 2, 4)) is None
    assert completed(second, (1, 2, 4, 5)) is not None
    back = after(image_of(second), cancel(image_of(second), "orders", 0))
    assert back.replicas == (1, 2)


def test_a_reassignment_to_where_it_was_ends_it() -> None:
    image = image_of(on(1, 2))
    begun = after(image, reassign(image, "orders", 0, (3, 4)))
    back = after(image_of(begun), reassign(image_of(begun), "orders", 0, (1, 2)))
    assert (back.replicas, back.isr, back.adding, back.removing) == ((1, 2), (1, 2), (), ())


def test_cancel_that_would_lose_records_is_refused() -> None:
    image = image_of(on(3, 1, isr=(3,), adding=(3,), removing=(1,)))
    refusal = cancel(image, "orders", 0)
    assert isinstance(refusal, Refusal)
    assert refusal.error == WireError.INVALID_REPLICA_ASSIGNMENT
    assert refusal.message == (
        "Unable to revert partition assignment for orders:0 because it would require an unclean leader election."
    )
    forced = after(image, cancel(image, "orders", 0, unclean=True))
    assert (forced.replicas, forced.isr, forced.leader) == ((1,), (1,), 1)


def test_an_eligible_replica_may_lead_again_after_a_cancel() -> None:
    image = image_of(on(3, 1, isr=(3,), adding=(3,), removing=(1,), elr=(1,)))
    back = after(image, cancel(image, "orders", 0))
    assert (back.isr, back.elr, back.leader, back.leader_epoch) == ((1,), (), 1, 1)


def test_no_leader_among_those_who_left() -> None:
    brokers = {**BROKERS, 3: Broker(3, {}, leaving=True)}
    state = PartitionState(0, (3, 4), (3, 4), 1)
    assert elected(ClusterImage(brokers=brokers), state).leader == 4
    assert elected(ClusterImage(brokers={3: brokers[3]}), state).leader == NO_BROKER


REFUSED = (
    ((), WireError.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."),
    (
        (1, 9),
        WireError.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes broker 9, but no such broker is registered.",
    ),
    (
        (2, 2),
        WireError.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes the broker 2 more than once.",
    ),
    ((1, 2, 3), WireError.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 2 to 3"),
)


@pytest.mark.parametrize(("target", "error", "message"), REFUSED)
def test_refusals(target: tuple[int, ...], error: WireError, message: str) -> None:
    image = image_of(on(1, 2))
    assert reassign(image, "orders", 0, target, may_change_factor=False) == Refusal(error, message)


def test_a_replica_that_is_down_may_stay() -> None:
    image = image_of(on(1, 2, isr=(1,)), gone=(2,))
    assert isinstance(reassign(image, "orders", 0, (2, 3)), PartitionChanged)


def test_unknown_places_and_nothing_to_cancel() -> None:
    image = image_of(on(1))
    unknown = WireError.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(image, "bills", 0, (1,)) == Refusal(unknown, "Unable to find a topic named bills.")
    assert cancel(image, "orders", 7) == Refusal(unknown, "Unable to find partition orders:7.")
    nothing = Refusal(WireError.NO_REASSIGNMENT_IN_PROGRESS, "")
    assert cancel(image, "orders", 0) == nothing
