"""Pytest plugin with the session fixtures `moldau_broker`, a real broker, and `moldau_spark`, Spark on it."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from moldau.testing.broker import Broker

if TYPE_CHECKING:
    from moldau.testing.spark import MoldauSpark


@pytest.fixture(scope="session")
def moldau_broker() -> Iterator[Broker]:
    """A running broker: `moldau_broker.bootstrap_servers`."""
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def moldau_spark(moldau_broker: Broker) -> "Iterator[MoldauSpark]":
    """A Spark session on that broker: `moldau_spark.spark`, `moldau_spark.bootstrap_servers`, `moldau_spark.broker`."""
    from moldau.spark import SparkUnavailable
    from moldau.testing.spark import spark_with

    with ExitStack() as stack:
        try:
            found = stack.enter_context(spark_with(moldau_broker))
        except SparkUnavailable as missing:
            pytest.fail(str(missing), pytrace=False)  # the message says what to install
        yield found
