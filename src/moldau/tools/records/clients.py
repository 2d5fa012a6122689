"""Producer and Consumer as commands use them: what cannot work fails soon, and nothing is logged.

Commands say themselves what happens; with the property debug librdkafka's lines go to stderr.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from moldau.client.admin.clients import NO_RESPONSE, of_client
from moldau.client.admin.errors import AdminError, InvalidProperty
from moldau.client.admin.reachability import check_reachable, diagnose
from moldau.client.admin.target import CLIENT_ID, CONNECT_TIMEOUT_S, Target
from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.options import OWNED, Protocol, Start
from moldau.client.errors import ClientError, InvalidUse, KafkaFailure
from moldau.client.producer.producer import Producer

COMMON = {
    "client.id": CLIENT_ID,
    "socket.connection.setup.timeout.ms": int(CONNECT_TIMEOUT_S * 1000),
    "topic.metadata.refresh.interval.ms": 30_000,
}


@contextmanager
def open_producer(target: Target, own: Mapping[str, object], max_block: float) -> Iterator[Producer[Any, Any]]:
    """A producer of properties; the user's come first. Records without an outcome at the end are dropped."""
    _prepare(target)
    try:
        producer: Producer[Any, Any] = Producer(
            target.bootstrap, max_block=max_block, properties={**COMMON, **own, **target.properties}
        )
    except InvalidUse as error:
        raise InvalidProperty(str(error)) from error
    try:
        yield producer
    finally:
        producer.close(0)


def open_consumer(
    target: Target,
    own: Mapping[str, object],
    *topics: str,
    group: str | None = None,
    protocol: Protocol = "classic",
    start: Start = "error",
) -> Consumer[Any, Any]:
    """A consumer of topics, or of partitions that it is assigned. Properties that the command decides are left out."""
    _prepare(target)
    decided = {"group.id", *OWNED}
    given = {name: value for name, value in target.properties.items() if name not in decided}
    try:
        return Consumer(
            target.bootstrap,
            *topics,
            group=group,
            protocol=protocol,
            start=start,
            properties={**COMMON, **own, **given},
        )
    except InvalidUse as error:
        raise InvalidProperty(str(error)) from error


def failure_of(error: ClientError, target: Target, topic: str) -> AdminError:
    """What a command says of an error; why brokers do not answer, if it is that."""
    if isinstance(error, KafkaFailure) and error.name in NO_RESPONSE and (problem := diagnose(target)):
        return problem
    return of_client(error, topic)


def _prepare(target: Target) -> None:
    check_reachable(target)
    log = logging.getLogger("moldau.client")
    if "debug" in target.properties:
        log.addHandler(logging.StreamHandler())
        log.setLevel(logging.INFO)
    else:
        log.setLevel(logging.CRITICAL + 1)
