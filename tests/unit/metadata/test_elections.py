"""Elections in cases of their own; what holds for all of them is in the properties."""

from uuid import UUID

from moldau.metadata.elections import ElectionRules, leader_and_isr_changes
from moldau.metadata.image import Broker, ClusterImage, PartitionState, Topic


def test_who_restarted_and_has_everything_comes_before_one_that_has_not() -> None:
    """unclean.leader.election.enable allows a loss where nobody can lead without one; here somebody can."""
    topic = Topic("t", UUID(int=7), (PartitionState(0, (1, 2), (1,), 1, leader_epoch=3),))
    image = ClusterImage(brokers={each: Broker(each, {}) for each in (1, 2)}, topics={"t": topic})
    (change,) = leader_and_isr_changes(image, ElectionRules(lambda _: 1, lambda _: True), restarted=[1])
    assert (change.leader, change.isr, change.leader_epoch) == (1, (1,), 4)
