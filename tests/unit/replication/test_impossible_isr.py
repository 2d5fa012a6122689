"""A proposal with a replica that is gone, or registered anew, was not granted and will not be: nobody waits for it."""

from moldau.metadata.changes import TopicCreated, fold
from moldau.metadata.elections import ElectionRules, leader_and_isr_changes
from moldau.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState
from moldau.replication.isr import Isr
from support.replication.simulated_cluster import TOPIC, TOPIC_ID

NOW, LAG_MS = 1_000, 500


def leading() -> Isr:
    """Broker 1 leads with 2 in sync; 3 has caught up under epoch 7, and is to join."""
    isr = Isr(1, (1, 2, 3), (1, 2), 5, epoch_start=0, high_watermark=10, now=NOW)
    isr.followers[2].fetched(12, 0, 4, 12, NOW)
    isr.followers[3].fetched(10, 0, 7, 12, NOW)
    isr.propose({1, 2, 3})
    return isr


def test_a_replica_that_may_be_in_sync_is_waited_for() -> None:
    isr = leading()
    assert not isr.proposal_cannot_succeed({2: 4, 3: 7}.get)
    assert not isr.advance(12, 2, NOW, LAG_MS, {2: 4, 3: 7}.get)


def test_one_that_is_gone_or_back_under_another_epoch_is_not() -> None:
    for epochs in ({2: 4}, {2: 4, 3: 9}):
        isr = leading()
        assert isr.proposal_cannot_succeed(epochs.get)
        isr.drop_pending()
        assert isr.advance(12, 2, NOW + 2 * LAG_MS, LAG_MS, epochs.get)
        assert isr.high_watermark == 12


def test_a_propose_to_shrink_is_never_hopeless() -> None:
    isr = Isr(1, (1, 2, 3), (1, 2, 3), 5, epoch_start=0, high_watermark=10, now=NOW)
    isr.propose({1, 2})
    assert not isr.proposal_cannot_succeed({}.get)


def test_the_last_replica_in_sync_leads_again_when_it_has_restarted_at_once() -> None:
    """Its partition had no leader, and nobody had noticed that it was away."""
    state = PartitionState(0, (1, 2), (2,), NO_BROKER, leader_epoch=4)
    image = fold(
        ClusterImage(brokers={each: Broker(each, {}, epoch=each) for each in (1, 2)}),
        TopicCreated(TOPIC, TOPIC_ID, (state,), {}),
    )
    (change,) = leader_and_isr_changes(image, ElectionRules(min_isr=lambda _: 1, unclean=lambda _: False), {2})
    assert (change.leader, change.leader_epoch, change.isr) == (2, 5, (2,))
