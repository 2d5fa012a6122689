"""Options of a consumer, checked, and as librdkafka's configuration. Connects to nothing."""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from moldau.client.arguments import (
    check_callable,
    check_interceptors,
    check_methods,
    check_number,
    check_seconds,
    check_text,
)
from moldau.client.consumer.rebalances import RebalanceListener
from moldau.client.errors import InvalidUse
from moldau.client.interceptors import ConsumerInterceptor
from moldau.client.message import Deserializers, Message
from moldau.client.settings import Properties, read_settings

Delivery: TypeAlias = Literal["at-least-once", "at-most-once", "exactly-once"]
Start: TypeAlias = Literal["earliest", "latest", "error"]
Protocol: TypeAlias = Literal["classic", "consumer"]
CommitMode: TypeAlias = Literal["auto", "manual"]
Topics: TypeAlias = str | re.Pattern[str] | Iterable[str | re.Pattern[str]]
Where: TypeAlias = Mapping[str, object] | Callable[[Message[Any, Any]], bool]

BUFFER_MESSAGES = 10_000
BUFFER_BYTES = 32 << 20
COMMIT_INTERVAL_S = 1.0
MAX_POLL_INTERVAL_MS = 300_000  # librdkafka's default, as the next one
METADATA_REFRESH_MS = 300_000
PATIENCE = 0.8  # of max.poll.interval.ms: how long a revocation waits for messages in hand

OWNED = {
    "enable.auto.commit": "use commit and commit_interval",
    "enable.auto.offset.store": "use commit and commit_interval",
    "auto.commit.interval.ms": "use commit_interval",
    "enable.partition.eof": "use lag()",
}
DEFAULTS: Mapping[str, object] = {
    # librdkafka prefetches; what it has is dropped when partitions are paused.
    "queued.max.messages.kbytes": BUFFER_BYTES >> 10,
    "fetch.wait.max.ms": 100,
    # 1 s by default: a consumer that empties the queue sooner waits for the rest of it.
    "fetch.queue.backoff.ms": 10,
    # KIP-899: after all brokers were down at once, librdkafka 2.16 forgets them, and the metadata request that a member
    # waits for before it joins its group. The next one would come topic.metadata.refresh.interval.ms later.
    "metadata.recovery.strategy": "none",
}


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What a consumer's engine needs to know."""

    configuration: Mapping[str, object]  # librdkafka's
    topics: tuple[str, ...] = ()  # patterns begin with ^
    group: str | None = None
    delivery: Delivery = "at-least-once"
    start: Start = "earliest"
    auto_commit: bool = True
    commit_interval_s: float = COMMIT_INTERVAL_S
    buffer_messages: int = BUFFER_MESSAGES
    buffer_bytes: int = BUFFER_BYTES
    deserializers: Deserializers = field(default_factory=Deserializers)
    where: Where | None = None
    listener: RebalanceListener = field(default_factory=RebalanceListener)
    interceptors: tuple[ConsumerInterceptor, ...] = ()
    tail: int | None = None  # without a group: start so many records before the end of each partition

    @property
    def incremental(self) -> bool:
        """Whether partitions come and go one by one, not all at once."""
        strategy = str(self.configuration.get("partition.assignment.strategy", ""))
        return self.configuration.get("group.protocol") == "consumer" or "cooperative" in strategy

    @property
    def max_poll_interval_s(self) -> float:
        return self._milliseconds("max.poll.interval.ms", MAX_POLL_INTERVAL_MS) / 1000

    @property
    def metadata_refresh_s(self) -> float:
        return self._milliseconds("topic.metadata.refresh.interval.ms", METADATA_REFRESH_MS) / 1000

    def _milliseconds(self, name: str, default: int) -> int:
        return int(str(self.configuration.get(name, default)))


def read_options(
    bootstrap: str | None,
    topics: Sequence[Topics],
    *,
    group: str | None = None,
    delivery: Delivery = "at-least-once",
    start: Start = "earliest",
    protocol: Protocol = "classic",
    commit: CommitMode = "auto",
    commit_interval: float = COMMIT_INTERVAL_S,
    instance_id: str | None = None,
    buffer_messages: int = BUFFER_MESSAGES,
    buffer_bytes: int = BUFFER_BYTES,
    deserializers: Deserializers = Deserializers(),  # noqa: B008  # an immutable value
    where: Where | None = None,
    listener: RebalanceListener | None = None,
    interceptors: Sequence[ConsumerInterceptor] = (),
    client_id: str | None = None,
    properties: Properties = None,
    on_stats: Callable[[str], None] | None = None,
) -> ConsumerOptions:
    """Check the arguments of a consumer, and make them librdkafka's configuration."""
    _check_choice("delivery", delivery, ("at-least-once", "at-most-once", "exactly-once"))
    _check_choice("start", start, ("earliest", "latest", "error"))
    _check_choice("protocol", protocol, ("classic", "consumer"))
    _check_choice("commit", commit, ("auto", "manual"))
    if group is None and delivery != "at-least-once":
        raise InvalidUse(f"delivery={delivery!r} needs a group: without one nothing is committed")
    check_seconds("commit_interval", commit_interval, positive=True)
    _check_buffer(buffer_messages, buffer_bytes)
    _check_names(group=group, instance_id=instance_id, client_id=client_id)
    _check_hooks(listener, interceptors, on_stats)
    settings = read_settings(bootstrap, properties)
    given = {
        "group.id": group if group is not None else settings.properties.get("group.id"),
        "group.instance.id": instance_id,
        "group.protocol": protocol if protocol != "classic" else None,
        "auto.offset.reset": start,
        "client.id": client_id,
        "stats_cb": on_stats,
    }
    fixed = {"enable.auto.commit": False, "enable.auto.offset.store": False, "enable.partition.eof": True}
    named = given["group.id"]
    if named is None:
        given["group.id"] = f"moldau-no-group-{uuid.uuid4()}"  # librdkafka wants one; nothing is asked about it
    return ConsumerOptions(
        configuration=settings.configuration(DEFAULTS, {**given, **fixed}, OWNED),
        topics=read_topics(topics),
        group=None if named is None else str(named),
        delivery=delivery,
        start=start,
        auto_commit=commit == "auto" and delivery != "exactly-once" and named is not None,
        commit_interval_s=commit_interval,
        buffer_messages=buffer_messages,
        buffer_bytes=buffer_bytes,
        deserializers=deserializers,
        where=where,
        listener=listener or RebalanceListener(),
        interceptors=tuple(interceptors),
    )


def read_topics(topics: Sequence[Topics]) -> tuple[str, ...]:
    """Names and patterns as librdkafka takes them: a pattern begins with ^."""
    found: list[str] = []
    for each in topics:
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, re.Pattern):
            found.append(_read_pattern(each))
        elif isinstance(each, Iterable):
            found += read_topics(tuple(each))
        else:
            raise InvalidUse(f"{each!r} is no topic: give names, or patterns made by re.compile")
    if "" in found:
        raise InvalidUse("a topic's name cannot be empty")
    return tuple(dict.fromkeys(found))


def _read_pattern(pattern: "re.Pattern[str]") -> str:
    """A pattern for whole names, as in Java's client."""
    text = pattern.pattern
    if not isinstance(text, str) or pattern.flags & ~re.UNICODE:
        raise InvalidUse(f"{pattern!r} cannot be used for topics: brokers know neither flags nor bytes")
    text = text.removeprefix("^")
    if text.endswith("$") and not text.endswith("\\$"):
        text = text.removesuffix("$")
    return f"^({text})$"


def _check_buffer(messages: int, size: int) -> None:
    check_number("buffer_messages", messages, 1)
    check_number("buffer_bytes", size, 1)


def _check_names(**names: str | None) -> None:
    for name, text in names.items():
        check_text(name, text)


def _check_hooks(
    listener: RebalanceListener | None, interceptors: Sequence[ConsumerInterceptor], on_stats: object
) -> None:
    if listener is not None:
        check_methods("listener", listener, RebalanceListener)
    check_interceptors(interceptors, ConsumerInterceptor)
    check_callable("on_stats", on_stats)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidUse(f"{name}={value!r} is not known; it is one of {', '.join(choices)}")
