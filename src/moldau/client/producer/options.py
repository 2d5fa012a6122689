"""From the arguments and properties of a producer to librdkafka's configuration. Builds nothing."""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from moldau.client.arguments import check_callable, check_number, check_seconds, check_text
from moldau.client.errors import InvalidUse
from moldau.client.producer.partitioners import DEFAULT
from moldau.client.settings import ClientSettings

logger = logging.getLogger("moldau.client.producer")

MAX_BLOCK_S = 60.0
MAX_BLOCK_PROPERTY = "max.block.ms"  # Java's; librdkafka has none
STATS_INTERVAL_MS = 10_000
MOST_IN_FLIGHT = 5  # requests of an idempotent producer
DEFAULTS: Mapping[str, object] = {
    "acks": "all",
    "delivery.timeout.ms": 120_000,
    "linger.ms": 5,
    "partitioner": DEFAULT,
    "queue.buffering.max.kbytes": 128 * 1024,
    "queue.buffering.max.messages": 100_000,
}
# KIP-899: after all brokers were down at once, librdkafka 2.16 forgets them and begins with the bootstrap addresses.
# But its request that adds offsets to a transaction goes on waiting for a broker that was forgotten, with any timeout.
NO_REBOOTSTRAP = "none"
# librdkafka 2.16 asks a few times for the coordinator of the group whose offsets are added to a transaction. After that
# it waits, with any timeout, until some connection comes up or goes down: idle ones do so after this time.
IDLE_MS = 20_000
OWNED = {"delivery.report.only.error": "the outcome of every record is needed"}

OnStats: TypeAlias = Callable[[dict[str, Any]], object]


def configuration(
    settings: ClientSettings,
    *,
    transactional_id: str | None,
    partitioner: str | None,
    linger: float | None,
    compression: str | None,
    buffer_messages: int | None,
    buffer_bytes: int | None,
    delivery_timeout: float | None,
    client_id: str | None,
    on_stats: OnStats | None,
) -> dict[str, object]:
    """librdkafka's configuration of a producer."""
    check_text("transactional_id", transactional_id)
    check_text("client_id", client_id)
    check_callable("on_stats", on_stats)
    for name, bound in (("buffer_messages", buffer_messages), ("buffer_bytes", buffer_bytes)):
        if bound is not None:
            check_number(name, bound, 1)
    check_seconds("delivery_timeout", delivery_timeout, positive=True)  # librdkafka takes 0 for ever
    given: dict[str, object | None] = {
        "transactional.id": transactional_id,
        "partitioner": partitioner,
        "linger.ms": _milliseconds("linger", linger),
        "compression.type": compression,
        "queue.buffering.max.messages": buffer_messages,
        "queue.buffering.max.kbytes": None if buffer_bytes is None else max(1, buffer_bytes // 1024),
        "delivery.timeout.ms": _milliseconds("delivery_timeout", delivery_timeout),
        "client.id": client_id,
    }
    properties = {name: value for name, value in settings.properties.items() if name != MAX_BLOCK_PROPERTY}
    defaults = {**DEFAULTS, "enable.idempotence": may_be_idempotent(properties)}
    if transactional_id or "transactional.id" in properties:
        del defaults["delivery.timeout.ms"]  # librdkafka takes that of the transaction
        defaults["metadata.recovery.strategy"] = NO_REBOOTSTRAP
        defaults["connections.max.idle.ms"] = IDLE_MS
    if on_stats is not None:
        defaults["statistics.interval.ms"] = STATS_INTERVAL_MS
    found = ClientSettings(settings.bootstrap, properties).configuration(defaults, given, OWNED)
    if on_stats is not None:
        found["stats_cb"] = _stats_reader(on_stats)
    return found


def may_be_idempotent(properties: Mapping[str, object]) -> bool:
    """As in Java: idempotent, unless a property contradicts it and the user does not insist."""
    acks = str(properties.get("acks", "all"))
    retries = str(properties.get("retries", 1))
    in_flight = str(properties.get("max.in.flight.requests.per.connection", 1))
    return acks in ("all", "-1") and retries != "0" and not (in_flight.isdigit() and int(in_flight) > MOST_IN_FLIGHT)


def read_max_block(argument: float | None, properties: Mapping[str, object]) -> float:
    """Seconds that a call may block."""
    given = properties.get(MAX_BLOCK_PROPERTY)
    if argument is None and given is not None:
        try:
            argument = float(str(given)) / 1000
        except ValueError:
            raise InvalidUse(f"{MAX_BLOCK_PROPERTY} must be a number of milliseconds") from None
    found = MAX_BLOCK_S if argument is None else argument
    check_seconds("max_block", found)
    return found


def _milliseconds(name: str, seconds: float | None) -> float | int | None:
    if seconds is None:
        return None
    check_seconds(name, seconds)
    found = seconds * 1000
    return found if name == "linger" else round(found)


def _stats_reader(on_stats: OnStats) -> Callable[[str], None]:
    def read(text: str) -> None:
        try:
            on_stats(json.loads(text))
        except Exception:
            logger.exception("The function on_stats raised")

    return read
