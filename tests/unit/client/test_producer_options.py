"""From a producer's arguments and properties to librdkafka's configuration, headers, timestamps, interceptors."""

import datetime
from typing import Any

import pytest

from moldau.client import interceptors
from moldau.client.errors import InvalidUse
from moldau.client.interceptors import Interceptors
from moldau.client.producer.options import IDLE_MS, configuration, may_be_idempotent, read_max_block
from moldau.client.producer.partitioners import choose
from moldau.client.producer.records import read_headers, read_timestamp
from moldau.client.settings import read_settings

NOTHING: dict[str, Any] = {
    "transactional_id": None,
    "partitioner": None,
    "linger": None,
    "compression": None,
    "buffer_messages": None,
    "buffer_bytes": None,
    "delivery_timeout": None,
    "client_id": None,
    "on_stats": None,
}


def configured(properties: dict[str, object] | None = None, **given: Any) -> dict[str, object]:
    found = configuration(read_settings("b:1", properties or {}), **{**NOTHING, **given})
    del found["logger"]
    return found


def test_defaults() -> None:
    assert configured() == {
        "bootstrap.servers": "b:1",
        "client.id": "moldau",
        "acks": "all",
        "delivery.timeout.ms": 120_000,
        "enable.idempotence": True,
        "linger.ms": 5,
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": 131_072,
        "queue.buffering.max.messages": 100_000,
    }


def test_arguments() -> None:
    found = configured(
        {"linger.ms": 7, "max.block.ms": 5, "buffer.memory": 2048, "message.timeout.ms": 9},
        linger=0.0015,
        compression="zstd",
        buffer_messages=3,
        buffer_bytes=5_000,
        client_id="me",
        partitioner="fnv1a",
    )
    expected = {
        "linger.ms": 1.5,
        "compression.type": "zstd",
        "queue.buffering.max.messages": 3,
        "queue.buffering.max.kbytes": 4,
        "client.id": "me",
        "partitioner": "fnv1a",
        "delivery.timeout.ms": 9,
    }
    assert expected.items() <= found.items()
    assert "max.block.ms" not in found


def test_the_delivery_timeout_of_a_transactional_producer_is_that_of_its_transactions() -> None:
    assert "delivery.timeout.ms" not in configured(transactional_id="x")
    assert "delivery.timeout.ms" not in configured({"transactional.id": "x"})
    assert configured(transactional_id="x", delivery_timeout=3)["delivery.timeout.ms"] == 3000


def test_connections_of_a_transactional_producer_are_not_idle_for_ever() -> None:
    assert configured(transactional_id="x")["connections.max.idle.ms"] == IDLE_MS
    assert configured({"connections.max.idle.ms": 7}, transactional_id="x")["connections.max.idle.ms"] == 7


@pytest.mark.parametrize(
    ("properties", "idempotent"),
    [
        ({}, True),
        ({"acks": "-1"}, True),
        ({"acks": 1}, False),
        ({"acks": "0"}, False),
        ({"retries": 0}, False),
        ({"max.in.flight.requests.per.connection": "6"}, False),
        ({"max.in.flight.requests.per.connection": 5}, True),
    ],
)
def test_idempotence_gives_way_to_properties_as_in_java(properties: dict[str, object], idempotent: bool) -> None:
    assert may_be_idempotent(properties) is idempotent
    assert configured(properties)["enable.idempotence"] is idempotent
    assert configured({**properties, "enable.idempotence": True})["enable.idempotence"] is True, "the user insists"


def test_max_block() -> None:
    assert read_max_block(None, {}) == 60.0
    assert read_max_block(None, {"max.block.ms": "1500"}) == 1.5
    assert read_max_block(0.0, {"max.block.ms": "1500"}) == 0.0
    with pytest.raises(InvalidUse, match=r"max\.block\.ms must be a number"):
        read_max_block(None, {"max.block.ms": "long"})


def test_a_property_that_would_hide_outcomes() -> None:
    with pytest.raises(InvalidUse, match=r"delivery\.report\.only\.error cannot be set"):
        configured({"delivery.report.only.error": True})


def test_headers() -> None:
    assert read_headers(None, None) == []
    assert read_headers({"a": "ä", "b": None}, {"c": "x"}) == [("a", "ä".encode()), ("b", None), ("c", b"x")]
    assert read_headers([("a", b"1"), ("a", b"2")], None) == [("a", b"1"), ("a", b"2")]


def test_timestamps() -> None:
    east = datetime.timezone(datetime.timedelta(hours=2))
    assert read_timestamp(None) is None
    assert read_timestamp(datetime.datetime(1970, 1, 1, 2, 0, 1, tzinfo=east)) == 1000


def test_a_partitioner_must_return_a_partition() -> None:
    assert choose(lambda *given: len(given[0]), "ab", None, None, 3) == 2
    with pytest.raises(InvalidUse):
        choose(lambda *given: 3, "ab", None, None, 3)


def test_a_failing_interceptor_is_skipped_and_logged_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, told = 100.0, []
    monkeypatch.setattr(interceptors.time, "monotonic", lambda: now)

    def fail(*_: object) -> int:
        raise ValueError("broken")

    called = Interceptors()
    for _ in range(3):
        assert called.pass_through([lambda n: n + 1, fail, lambda n: n * 10], 1) == 20
        called.tell([fail, told.append], "x")
    assert (told, len(caplog.records)) == (["x"] * 3, 1)
    now += interceptors.REPEAT_S
    called.tell([fail], "x")
    assert len(caplog.records) == 2
