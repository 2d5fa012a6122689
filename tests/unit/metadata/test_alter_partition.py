"""AlterPartition: what a leader may say of its in-sync replicas, and what it hears otherwise."""

from dataclasses import replace
from uuid import UUID

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.metadata.alter_partition import ProposedIsr, alter_partition
from moldau.metadata.changes import (
    BrokerConfigured,
    BrokerGone,
    BrokerLeaving,
    BrokerRegistered,
    PartitionChanged,
    TopicCreated,
    apply,
)
from moldau.metadata.elections import (
    ElectionRules,
    controlled_shutdown_changes,
    elect,
    leader_and_isr_changes,
    leader_rebalance_changes,
    unclean_shutdown_changes,
)
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState

TOPIC_ID = UUID(int=9)
RULES = ElectionRules(min_isr=lambda _: 2, unclean=lambda _: False)


def image_of(state: PartitionState) -> ClusterImage:
    """Brokers 1 to 4, with epochs 1 to 4."""
    image = ClusterImage(controller_epoch=1)
    for number in (1, 2, 3, 4):
        image = apply(image, BrokerRegistered(Broker(number, {})))
    return apply(image, TopicCreated("t", TOPIC_ID, (state,), {}))


STATE = PartitionState(0, (1, 2, 3), (1, 2), leader=1, leader_epoch=5)
IMAGE = image_of(STATE)
ASKED = ProposedIsr(TOPIC_ID, 0, leader_epoch=5, partition_epoch=0, members={1: 1, 2: 2, 3: 3})


def test_a_follower_that_has_caught_up_is_let_in() -> None:
    change = alter_partition(IMAGE, 1, 1, ASKED, RULES)
    assert change == PartitionChanged("t", 0, (1, 2, 3), (1, 2, 3), leader=1, leader_epoch=5)


def test_who_leaves_an_isr_that_is_then_too_small_stays_eligible() -> None:
    change = alter_partition(IMAGE, 1, 1, ASKED._replace(members={1: 1}), RULES)
    assert change == PartitionChanged("t", 0, (1, 2, 3), (1,), leader=1, leader_epoch=5, elr=(2,))


@pytest.mark.parametrize(
    ("asked", "broker", "epoch", "error"),
    [
        (ASKED, 1, 7, WireError.STALE_BROKER_EPOCH),
        (ASKED, 9, 1, WireError.STALE_BROKER_EPOCH),
        (ASKED._replace(topic_id=UUID(int=8)), 1, 1, WireError.UNKNOWN_TOPIC_ID),
        (ASKED._replace(partition=1), 1, 1, WireError.UNKNOWN_TOPIC_OR_PARTITION),
        (ASKED._replace(leader_epoch=6), 1, 1, WireError.NOT_CONTROLLER),
        (ASKED._replace(partition_epoch=1), 1, 1, WireError.NOT_CONTROLLER),
        (ASKED._replace(leader_epoch=4), 1, 1, WireError.FENCED_LEADER_EPOCH),
        (ASKED, 2, 2, WireError.INVALID_REQUEST),
        (ASKED._replace(partition_epoch=-1), 1, 1, WireError.INVALID_UPDATE_VERSION),
        (ASKED._replace(members={1: 1, 4: 4}), 1, 1, WireError.INVALID_REQUEST),
        (ASKED._replace(members={1: 1, 2: 2, 3: 2}), 1, 1, WireError.INELIGIBLE_REPLICA),
    ],
)
def test_refusals(asked: ProposedIsr, broker: int, epoch: int, error: WireError) -> None:
    outcome = alter_partition(IMAGE, broker, epoch, asked, RULES)
    assert isinstance(outcome, Refusal)
    assert outcome.error is error


def test_who_is_gone_or_leaving_is_not_let_in() -> None:
    for change in (BrokerGone(3), BrokerLeaving(3)):
        outcome = alter_partition(apply(IMAGE, change), 1, 1, ASKED._replace(members={1: 1, 3: 3}), RULES)
        assert isinstance(outcome, Refusal)
        assert outcome.error is WireError.INELIGIBLE_REPLICA


def test_a_leader_without_itself_resigns() -> None:
    change = alter_partition(IMAGE, 1, 1, ASKED._replace(members={2: 2}), RULES)
    assert change == PartitionChanged("t", 0, (1, 2, 3), (2,), leader=2, leader_epoch=6)
    alone = image_of(replace(STATE, isr=(1,)))
    change = alter_partition(alone, 1, 1, ASKED._replace(members={}), RULES)
    assert change == PartitionChanged("t", 0, (1, 2, 3), (1,), leader=NO_BROKER, leader_epoch=6)


def test_a_follower_whose_disk_failed_is_left_out_at_once() -> None:
    """And is not eligible either, although the ISR is too small without it."""
    change = alter_partition(IMAGE, 2, 2, ASKED._replace(members={1: -1}), RULES)
    assert change == PartitionChanged("t", 0, (1, 2, 3), (1,), leader=1, leader_epoch=5)


@pytest.mark.parametrize(
    ("state", "broker", "asked"),
    [
        (STATE, 2, ASKED._replace(members={2: 2})),  # without its leader
        (STATE, 2, ASKED._replace(members={})),
        (STATE, 2, ASKED._replace(members={1: 1, 2: 2})),  # nothing
        (STATE, 3, ASKED._replace(members={1: 1})),  # without another
        (replace(STATE, isr=(1, 2, 3)), 2, ASKED._replace(members={1: 1})),  # without another as well
        (replace(STATE, leader=NO_BROKER), 2, ASKED._replace(members={1: 1})),
    ],
)
def test_a_follower_can_ask_for_nothing_else(state: PartitionState, broker: int, asked: ProposedIsr) -> None:
    outcome = alter_partition(image_of(state), broker, broker, asked, RULES)
    assert isinstance(outcome, Refusal)
    assert outcome.error is WireError.INVALID_REQUEST


def test_a_follower_is_left_out_of_what_it_knows_only() -> None:
    for asked, error in (
        (ASKED._replace(members={1: 1}, partition_epoch=-1), WireError.INVALID_UPDATE_VERSION),
        (ASKED._replace(members={1: 1}, leader_epoch=4), WireError.FENCED_LEADER_EPOCH),
    ):
        outcome = alter_partition(IMAGE, 2, 2, asked, RULES)
        assert isinstance(outcome, Refusal)
        assert outcome.error is error
    earlier_life = alter_partition(IMAGE, 2, 1, ASKED._replace(members={1: 1}), RULES)
    assert isinstance(earlier_life, Refusal)
    assert earlier_life.error is WireError.STALE_BROKER_EPOCH


def test_who_has_nothing_to_offer_of_a_partition_is_not_eligible_for_it() -> None:
    there = image_of(PartitionState(0, (1, 2, 3), (1, 2), 1))
    (change,) = unclean_shutdown_changes(there, 1, RULES, {("t", 0)})
    assert (change.leader, change.isr) == (2, (2,))
    assert (
        unclean_shutdown_changes(there, 1, RULES, {("u", 0)})
        == unclean_shutdown_changes(there, 3, RULES, {("t", 0)})
        == ()
    )


def test_the_last_one_stays_so_even_with_nothing_to_offer() -> None:
    there = image_of(PartitionState(0, (1, 2, 3), (1,), 1))
    assert unclean_shutdown_changes(there, 1, RULES, {("t", 0)}) == ()


def led(*leaders: int, preferred: int = 1) -> ClusterImage:
    """A topic whose partitions all prefer one broker, and are led by these."""
    others = [each for each in (1, 2, 3) if each != preferred]
    states = [PartitionState(index, (preferred, *others), (1, 2, 3), each) for index, each in enumerate(leaders)]
    return apply(image_of(STATE), TopicCreated("u", UUID(int=8), tuple(states), {}))


def test_a_broker_gets_its_leadership_back_when_it_lacks_more_than_the_percentage() -> None:
    """STATE is one more that broker 1 prefers, and leads."""
    nine_of_ten = led(2, *[1] * 8)
    assert leader_rebalance_changes(nine_of_ten, 10, RULES) == ()
    (change,) = leader_rebalance_changes(nine_of_ten, 9, RULES)
    assert (change.topic, change.index, change.leader) == ("u", 0, 1)
    two_of_ten = led(2, 3, *[1] * 7)
    assert [each.index for each in leader_rebalance_changes(two_of_ten, 10, RULES)] == [0, 1]
    assert leader_rebalance_changes(two_of_ten, 20, RULES) == ()
    assert leader_rebalance_changes(two_of_ten, 10, RULES._replace(cordoned={1})) == ()


def test_each_broker_is_judged_by_what_it_prefers_itself() -> None:
    both = apply(led(2, *[1] * 8), TopicCreated("v", UUID(int=7), (PartitionState(0, (3, 1), (1, 3), 1),), {}))
    assert [each.topic for each in leader_rebalance_changes(both, 10, RULES)] == ["v"]


def test_who_is_cordoned_leads_only_what_nobody_else_can() -> None:
    state = PartitionState(0, (1, 2, 3), (1, 2, 3), 1)
    left = ClusterImage(brokers={each: Broker(each, {}) for each in (2, 3)}, topics={})
    assert elect(state, left.brokers, cordoned={2}).leader == 3
    assert elect(replace(state, isr=(1, 2)), left.brokers, cordoned={2}).leader == 2
    assert elect(replace(state, isr=(2,), elr=(3,)), left.brokers, cordoned={2}).leader == 2


def test_who_is_cordoned_is_read_from_the_brokers_settings() -> None:
    image = apply(IMAGE, BrokerConfigured("2", {"cordoned.log.dirs": "*"}))
    image = apply(image, BrokerConfigured("3", {"cordoned.log.dirs": "/one/of/them"}))
    assert image.cordoned == {2}


def test_a_reassignment_is_done_when_all_that_come_are_in_sync() -> None:
    moving = image_of(PartitionState(0, (2, 3, 1), (1, 2), leader=1, leader_epoch=5, adding=(3,), removing=(1,)))
    change = alter_partition(moving, 1, 1, ASKED, RULES)
    assert change == PartitionChanged("t", 0, (2, 3), (2, 3), leader=2, leader_epoch=6)


def test_who_resigns_from_a_topic_that_accepts_loss_has_a_successor_at_once() -> None:
    """Its disk failed, and nobody else was in sync."""
    image = image_of(replace(STATE, isr=(1,)))
    lenient = ElectionRules(min_isr=lambda _: 1, unclean=lambda _: True)
    change = alter_partition(image, 1, 1, ASKED._replace(members={}), lenient)
    assert change == PartitionChanged("t", 0, (1, 2, 3), (2,), leader=2, leader_epoch=6)
    refusing = lenient._replace(unclean=lambda _: False)
    change = alter_partition(image, 1, 1, ASKED._replace(members={}), refusing)
    assert isinstance(change, PartitionChanged)
    assert change.leader == NO_BROKER


def test_an_eligible_replica_stays_so_when_the_leader_shuts_down() -> None:
    image = image_of(PartitionState(0, (1, 2, 3), (1, 2), leader=1, elr=(3,)))
    (change,) = controlled_shutdown_changes(image, 1, RULES._replace(min_isr=lambda _: 3))
    assert (change.leader, change.isr, change.elr) == (2, (2,), (1, 3))


def test_a_reassignment_that_waited_for_an_election_is_done_with_it() -> None:
    """The last replica of before is lost for good: nobody else would say that all who come are there."""
    moving = PartitionState(0, (2, 1), (1,), leader=1, leader_epoch=5, adding=(2,), removing=(1,))
    image = apply(image_of(moving), BrokerGone(1))
    (change,) = leader_and_isr_changes(image, ElectionRules(min_isr=lambda _: 1, unclean=lambda _: True))
    assert change == PartitionChanged("t", 0, (2,), (2,), leader=2, leader_epoch=6)
