"""Mistakes in arguments: each is `InvalidUse`, names the argument, and says what would do."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from moldau import Backoff, Consumer, Encrypted, InvalidUse, Keys, Producer, RebalanceListener, Retry
from moldau.client.arguments import partition_of, partitions_of
from moldau.client.consumer.positions import milliseconds
from moldau.client.producer.records import listed, read_headers, read_timestamp


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"bootstrap": ["a:1", "b:1"]}, "give addresses as one text"),
        ({"linger": "5"}, "linger='5': give seconds as a number, 0 or more"),
        ({"max_block": True}, "max_block=True"),
        ({"delivery_timeout": 0}, "delivery_timeout=0: give seconds as a number, more than 0"),
        ({"buffer_messages": 0}, "buffer_messages=0: give 1 or more"),
        ({"buffer_bytes": "1 MB"}, "buffer_bytes='1 MB'"),
        ({"transactional_id": ""}, "transactional_id='': give a text that is not empty"),
        ({"client_id": 3}, "client_id=3"),
        ({"partitioner": 3}, "partitioner=3: give a function"),
        ({"interceptors": "x"}, "give a list of them"),
        ({"interceptors": ["x"]}, "on_send, on_delivery"),
        ({"on_stats": "x"}, "on_stats='x': give a function"),
        ({"properties": ["a=b"]}, "give a mapping, or the path of a properties file"),
    ],
)
def test_a_producer(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidUse, match=told.replace("(", r"\(")):
        Producer(**{"bootstrap": "localhost:1", **wrong})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"group": ""}, "group='': give a text that is not empty"),
        ({"instance_id": 3}, "instance_id=3"),
        ({"commit_interval": 0}, "commit_interval=0: give seconds as a number, more than 0"),
        ({"buffer_messages": "10"}, "buffer_messages='10': give 1 or more"),
        ({"concurrency": "4"}, "concurrency='4': give 1 or more"),
        ({"retry": 5}, "retry=5: give a Retry"),
        ({"retry": Retry(topic="orders")}, "orders cannot be both"),
        ({"listener": RebalanceListener}, "give an object with on_assigned"),
        ({"interceptors": [3]}, "on_consume, on_commit"),
    ],
)
def test_a_consumer(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidUse, match=told):
        Consumer("localhost:1", "orders", **{"group": "g", **wrong})


def test_the_rest() -> None:
    mistakes: list[Any] = [
        lambda: Retry(times="5"),  # type: ignore[arg-type]
        lambda: Retry(backoff=3),  # type: ignore[arg-type]
        lambda: Backoff(first="1"),  # type: ignore[arg-type]
        lambda: Keys({"a": "x" * 32}, current="a"),  # type: ignore[dict-item]
        lambda: Encrypted(str, keys={"a": b"x" * 32}),  # type: ignore[arg-type]
        lambda: partition_of("orders"),
        lambda: partition_of(("orders", "0")),
        lambda: partitions_of("orders"),
        lambda: partitions_of(3),
        lambda: milliseconds("yesterday"),  # type: ignore[arg-type]
        lambda: read_headers("abc", None),  # type: ignore[arg-type]
        lambda: read_headers([("a",)], None),  # type: ignore[list-item]
        lambda: read_headers(None, ["a"]),  # type: ignore[arg-type]
        lambda: read_timestamp("now"),  # type: ignore[arg-type]
        lambda: read_timestamp(1.5),  # type: ignore[arg-type]
        lambda: read_timestamp(2**70),
        lambda: read_timestamp(datetime(2026, 1, 1)),
        lambda: listed("abc", None),
        lambda: listed(["a"], "k"),
    ]
    for mistake in mistakes:
        with pytest.raises(InvalidUse, match=r"give|whole|zone|one or more"):
            mistake()


def test_what_is_right() -> None:
    assert partition_of(("orders", 3)) == ("orders", 3)
    assert partitions_of([("orders", 3)]) == [("orders", 3)]
    with pytest.raises(InvalidUse, match="cannot read"):
        Producer("localhost:1", properties=Path("/nonexistent"))
