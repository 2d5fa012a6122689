"""Which options of a run make sense together. No broker: nothing connects before the run."""

import re
from typing import Any

import pytest

from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.retries import Retry
from moldau.client.errors import InvalidUse


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"concurrency": 0}, "concurrency=0"),
        ({"order": "topic"}, "order='topic'"),
        ({"retry": Retry(), "delivery": "at-most-once"}, "at-least-once"),
        ({"retry": Retry(), "delivery": "exactly-once"}, "at-least-once"),
        ({"retry": Retry(topic="again"), "group": None}, "needs a group"),
        ({"retry": Retry(dead="orders")}, "reads orders itself"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidUse, match=told):
        Consumer("localhost:1", "orders", **{"group": "g", **options})


def test_a_pattern_must_not_match_the_dead_letters() -> None:
    with pytest.raises(InvalidUse, match=r"reads orders\.dead itself"):
        Consumer("localhost:1", re.compile("orders.*"), group="g", retry=Retry(dead="orders.dead"))
    Consumer("localhost:1", re.compile("orders.*"), group="g", retry=Retry(topic="orders.retry", dead="dead"))


def test_a_loop_cannot_try_again() -> None:
    consumer = Consumer("localhost:1", "orders", group="g", retry=Retry())
    with pytest.raises(InvalidUse, match=r"consumer\.run\(handler\)"):
        next(iter(consumer))


def test_exactly_once_needs_transactions() -> None:
    consumer = Consumer("localhost:1", "orders", group="g", delivery="exactly-once")
    with pytest.raises(InvalidUse, match=r"consumer\.transactions"):
        consumer.run(lambda message: None)
