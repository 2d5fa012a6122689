"""Internal topics: how they are created where there are few brokers, and that more may come later."""

from uuid import UUID

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.broker.internal_topics import AUDIT, OFFSETS, TRANSACTIONS, internal_spec
from moldau.broker.settings import load
from moldau.metadata.image import Broker, ClusterImage, PartitionState, Topic
from moldau.metadata.topics import add_partitions

CONFIG, _ = load({})


@pytest.mark.parametrize("brokers", [1, 2, 3, 5])
def test_there_are_as_many_replicas_as_there_can_be(brokers: int) -> None:
    image = ClusterImage(brokers={each: Broker(each, {}) for each in range(brokers)})
    for name in (AUDIT, OFFSETS, TRANSACTIONS):
        spec = internal_spec(name, CONFIG, image)
        assert spec is not None
        assert spec.replication == min(brokers, 3)


@pytest.mark.parametrize("brokers", [1, 3])
def test_transactions_that_get_more_replicas_need_not_be_told_how_many_count(brokers: int) -> None:
    """A leader asks for no more than there are. Were it less at first, a raise would leave one replica enough."""
    spec = internal_spec(
        TRANSACTIONS, CONFIG, ClusterImage(brokers={each: Broker(each, {}) for each in range(brokers)})
    )
    assert spec is not None
    assert spec.config["min.insync.replicas"] == "2"


@pytest.mark.parametrize("name", [OFFSETS, TRANSACTIONS])
def test_where_a_group_is_found_does_not_change(name: str) -> None:
    """With another number of partitions, groups and transactional ids would be looked for where they are not."""
    topic = Topic(name, UUID(int=1), (PartitionState(0, (1,), (1,), 1),), {})
    refusal = add_partitions(ClusterImage(brokers={1: Broker(1, {})}, topics={name: topic}), name, 2)
    assert isinstance(refusal, Refusal)
    assert refusal.error is WireError.INVALID_REQUEST
