"""Reassignment: whatever is asked and whoever fails meanwhile, committed records stay where they can be led from."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from moldau.base.errors import Refusal
from moldau.metadata.changes import ChangeSet, PartitionChanged, TopicCreated, apply
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState
from moldau.metadata.reassignment import cancel, completed, elected, original_of, reassign, reassigning, target_of

IDS = range(1, 7)
TARGETS = st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True).map(tuple)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reassign"), TARGETS),
        st.tuples(st.just("isr"), st.sets(st.sampled_from(IDS))),
        st.tuples(st.just("cancel"), st.none()),
    ),
    max_size=12,
)


def begin(replicas: tuple[int, ...]) -> ClusterImage:
    brokers = {id_: Broker(id_, {}) for id_ in IDS}
    state = PartitionState(0, replicas, replicas, replicas[0])
    return apply(ClusterImage(brokers=brokers), TopicCreated("t", UUID(int=9), (state,), {}))


def state_of(image: ClusterImage) -> PartitionState:
    state = image.partition("t", 0)
    assert state is not None
    return state


def report_isr(image: ClusterImage, joining: set[int]) -> ClusterImage:
    """The leader reports followers that have caught up, and others that have not, as AlterPartition does."""
    old = state_of(image)
    isr = tuple(each for each in old.replicas if each == old.leader or each in joining)
    new = elected(image, completed(old, isr) or replace(old, isr=isr))
    change = PartitionChanged(
        "t", 0, new.replicas, new.isr, new.leader, old.leader_epoch + 1, new.adding, new.removing, new.elr
    )
    return apply(image, change)


@given(TARGETS, STEPS)
def test_the_partition_always_has_a_leader_with_all_records(start: tuple[int, ...], steps) -> None:
    image, before = begin(start), start
    for step, value in steps:
        old = state_of(image)
        if step == "isr":
            image = report_isr(image, value)
        else:
            change = reassign(image, "t", 0, value) if step == "reassign" else cancel(image, "t", 0)
            if not isinstance(change, Refusal):
                image = apply(image, change)
        new = state_of(image)
        assert new.leader in new.isr
        assert set(new.isr) <= set(new.replicas)
        assert len(set(new.replicas)) == len(new.replicas)
        assert set(new.adding) | set(new.removing) <= set(new.replicas)
        assert target_of(new)
        if step != "isr":
            assert set(new.isr) <= set(old.isr), "nobody is declared to be in sync"
        assert (new.leader == old.leader) or new.leader_epoch > old.leader_epoch
        before = new.replicas if not reassigning(new) else before
        if reassigning(new):
            assert set(original_of(new)) == set(before), "cancelling leads to the replicas before the first step"


@given(TARGETS, TARGETS)
def test_every_reassignment_ends_at_its_target(start: tuple[int, ...], target: tuple[int, ...]) -> None:
    image = begin(start)
    change = reassign(image, "t", 0, target)
    assert isinstance(change, PartitionChanged | ChangeSet)
    image = apply(image, change)
    if reassigning(state_of(image)):
        assert target_of(state_of(image)) == target
        image = report_isr(image, set(IDS))
    done = state_of(image)
    assert (done.replicas, reassigning(done)) == (target, False)
    assert set(done.isr) <= set(target)
    assert done.leader != NO_BROKER
