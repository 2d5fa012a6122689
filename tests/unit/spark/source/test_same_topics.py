"""A checkpoint of another query is named as that."""

import pytest

from moldau.base.ids import TopicPartition
from moldau.spark.cluster import QueryFailed
from moldau.spark.offsets import Assign, ConsumerStrategy, Subscribe, SubscribePattern
from moldau.spark.source.same_topics import check_same_topics

ORDERS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
BOTH = [*ORDERS, TopicPartition("notes", 0)]


@pytest.mark.parametrize(
    ("topics", "offsets", "sentence"),
    [
        (Subscribe(("payments",)), ORDERS, "the checkpoint is for orders, the query reads payments"),
        (Subscribe(("orders", "payments")), ORDERS, None),
        (Subscribe(("orders",)), BOTH, "the checkpoint is for notes, orders, the query reads orders"),
        (Subscribe(("orders",)), [], None),
        (SubscribePattern("pay.*"), ORDERS, "the checkpoint is for orders, the query reads topics that match pay.*"),
        (SubscribePattern("ord|note"), BOTH, None),
        (Assign((ORDERS[0],)), ORDERS, "the checkpoint is for orders-0, orders-1, the query reads orders-0"),
        (Assign(tuple(BOTH)), ORDERS, None),
    ],
)
def test_the_topics_are_those_of_the_checkpoint(
    topics: ConsumerStrategy, offsets: list[TopicPartition], sentence: str | None
) -> None:
    if sentence is None:
        check_same_topics(topics, offsets, lenient=False)
        return
    with pytest.raises(QueryFailed) as refused:
        check_same_topics(topics, offsets, lenient=False)
    assert str(refused.value).startswith(f"{sentence}. A checkpoint belongs to one query")
    assert "failOnDataLoss" not in str(refused.value)


def test_a_lenient_query_may_leave_topics_out() -> None:
    check_same_topics(Subscribe(("orders",)), BOTH, lenient=True)
    with pytest.raises(QueryFailed, match="the checkpoint is for orders, the query reads payments"):
        check_same_topics(Subscribe(("payments",)), ORDERS, lenient=True)
