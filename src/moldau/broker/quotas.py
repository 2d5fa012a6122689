"""Quotas of this broker's clients: their token buckets, and a meter for each request that counts against them.

Each broker counts by itself, as Kafka does. Without a quota in the image there is no meter, and nothing is counted.

- Produce: bytes of the request, counted when it comes. Its connection is muted at once, and its response says for how
  long.
- Fetch: bytes of records, counted when the response is made. A response has at most a quarter of a window of the
  quota. A client that is over its quota, because other connections share it, gets an empty response.
- Request percentage: the time that the event loop spends on requests; 100 is all of it.
- Controller mutations: created and deleted partitions, counted by the controller.
"""

import logging
import math
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable
from dataclasses import dataclass
from time import monotonic, perf_counter
from types import TracebackType
from typing import Any, Final, Protocol

from moldau.base.errors import Refusal, WireError
from moldau.base.session import Session
from moldau.broker.quota_documents import read_quotas
from moldau.broker.settings import BrokerConfig
from moldau.metadata.changes import Change, Decide
from moldau.metadata.image import ClusterImage
from moldau.security.quotas import (
    CONNECTION,
    FETCH,
    MUTATION,
    PRODUCE,
    REQUEST,
    QuotaKey,
    Quotas,
    TokenBucket,
    Window,
    client_limit,
    ip_limit,
)

logger: Final = logging.getLogger("moldau.broker")

MAX_BUCKETS: Final = 10_000  # beyond which full buckets are dropped: their clients have paused
MAX_INT: Final = 2**31 - 1
UNLIMITED: Final = MAX_INT  # bytes of a Fetch response
BURST: Final = 0.25  # of a window, that a client may use at once after a pause, and gets in one Fetch response
FIRST: Final = 0.1  # of a window, that it may use when it starts: so its first seconds are within the quota too
EXCEEDED: Final = Refusal(WireError.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class Throttled(Protocol):
    """A connection that is muted for a while."""

    def throttle(self, ms: float, /) -> None: ...


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """The buckets of a user with a client id, kept in the sessions of its connections."""

    quotas: Quotas  # from which the buckets were chosen
    user: str
    client_id: str
    produce: TokenBucket | None
    fetch: TokenBucket | None
    request: TokenBucket | None
    mutation: TokenBucket | None

    @property
    def unlimited(self) -> bool:
        return self.produce is None and self.fetch is None and self.request is None and self.mutation is None


class ClientQuotas:
    def __init__(self, config: Callable[[], BrokerConfig], clock: Callable[[], float] = monotonic) -> None:
        self._config = config
        self._clock = clock
        self._quotas: Quotas = {}
        self._buckets: dict[Hashable, TokenBucket] = {}

    @property
    def active(self) -> bool:
        """Whether any client has a quota."""
        return bool(self._quotas)

    def follow(self, old: ClusterImage | None, new: ClusterImage) -> bool:
        """Take over the quotas of an image; returns whether they changed."""
        if old is not None and old.documents is new.documents:
            return False
        quotas, unreadable = read_quotas(new.documents)
        for path in unreadable:
            logger.warning("A quota in %s cannot be read and does not apply; set it again", path)
        changed = quotas != self._quotas
        if changed:
            self._quotas = quotas  # another object: sessions look again
        return changed

    def meter(self, session: Session, client_id: str, connection: Throttled | None) -> "Meter | None":
        """A meter for the next request of a session; None: the client has no quota.

        `connection` is None where another broker has the connection, and mutes it.
        """
        quota = session.quota
        user = session.principal.name
        if (
            not isinstance(quota, ClientQuota)
            or quota.quotas is not self._quotas
            or quota.user != user
            or quota.client_id != client_id
        ):
            session.quota = quota = self._find(user, client_id)
        return None if quota.unlimited else Meter(quota, connection, self._clock)

    def _find(self, user: str, client_id: str) -> ClientQuota:
        config = self._config()
        window_s = config.quota_window_size_seconds
        mutations_s = config.controller_quota_window_num * config.controller_quota_window_size_seconds
        usual = Window(window_s * BURST, window_s * FIRST)
        bounded = usual._replace(longest_s=window_s * config.quota_window_num)

        def bucket(key: QuotaKey, window: Window, unit: float = 1.0) -> TokenBucket | None:
            limit = client_limit(self._quotas, key, user, client_id)
            return None if limit is None else self._bucket(limit.bucket, limit.rate * unit, window)

        return ClientQuota(
            self._quotas,
            user,
            client_id,
            produce=bucket(PRODUCE, usual),
            fetch=bucket(FETCH, usual),
            request=bucket(REQUEST, bounded, 0.01),
            mutation=bucket(MUTATION, Window(mutations_s, mutations_s)),
        )

    def connection_wait_s(self, ip: str) -> tuple[float, bool]:
        """How long a new connection of this address has to wait, and whether it may be served after that."""
        rate = ip_limit(self._quotas, ip)
        if rate is None:
            return 0.0, True
        config, now = self._config(), self._clock()
        window_s = config.quota_window_size_seconds
        bucket = self._bucket((CONNECTION.name, ip), rate, Window(window_s, window_s))
        bucket.take(1, now)
        wait_s = bucket.wait_s(now)
        longest_s = window_s * config.quota_window_num
        if wait_s <= longest_s:
            return wait_s, True
        bucket.take(-1, now)
        return longest_s, False

    def _bucket(self, name: Hashable, rate: float, window: Window) -> TokenBucket:
        """A bucket that is there already keeps what it has counted when its rate changes."""
        bucket = self._buckets.get(name)
        if bucket is None:
            self._make_room()
            bucket = self._buckets[name] = TokenBucket(rate, window, self._clock())
        elif bucket.rate != rate or bucket.window != window:
            bucket.take(0, self._clock())  # the old rate counts up to now
            bucket.rate, bucket.window = rate, window
        return bucket

    def _make_room(self) -> None:
        if len(self._buckets) >= MAX_BUCKETS:
            now = self._clock()
            self._buckets = {name: each for name, each in self._buckets.items() if not each.is_full(now)}


class Meter:
    """Counts one request against the quotas of its client, and throttles its connection."""

    __slots__ = ("_began", "_clock", "_connection", "_fetch_buckets", "_mutation_s", "_produced", "_taken", "quota")

    def __init__(self, quota: ClientQuota, connection: Throttled | None, clock: Callable[[], float]) -> None:
        self.quota = quota
        self._connection = connection
        self._clock = clock
        self._began = perf_counter()  # when the loop began to work on the request, or 0 while it does not
        self._produced = False
        self._mutation_s = 0.0
        self._fetch_buckets = () if quota.fetch is None else (quota.fetch,)
        self._taken: list[TokenBucket] = []

    def take(self, bucket: TokenBucket, amount: int) -> None:
        """Count against a limit that is no quota of the client, such as its organisation's."""
        now = self._clock()
        bucket.take(amount, now)
        if bucket not in self._taken:
            self._taken.append(bucket)
        self._mute(bucket.wait_s(now))

    def limit_fetch(self, buckets: Iterable[TokenBucket]) -> None:
        """Limits of the records in this response, beside the client's quota. What is sent has to be taken from them."""
        self._fetch_buckets = (*self._fetch_buckets, *buckets)

    def produced(self, size: int) -> None:
        """Count a Produce request, and mute its connection at once: a response with acks=all may take a while."""
        bucket = self.quota.produce
        if bucket is not None:
            now = self._clock()
            bucket.take(size, now)
            self._produced = True
            self._mute(bucket.wait_s(now))

    @property
    def may_fetch(self) -> bool:
        """Whether records may be sent now."""
        now = self._clock()
        return not any(bucket.wait_s(now) for bucket in self._fetch_buckets)

    @property
    def most_fetched(self) -> int:
        """The most bytes of records in a response, unless a single batch is larger."""
        return min((int(each.rate * each.window.burst_s) for each in self._fetch_buckets), default=UNLIMITED)

    def fetched(self, size: int) -> None:
        """Count the records of a Fetch response."""
        if self.quota.fetch is not None:
            self.quota.fetch.take(size, self._clock())

    def mutated(self, partitions: int, *, strict: bool) -> Refusal | None:
        """Count partitions to be created or deleted. A strict quota refuses them once it is exhausted (KIP-599)."""
        bucket = self.quota.mutation
        if bucket is None:
            return None
        now = self._clock()
        if strict and (wait_s := bucket.wait_s(now)):
            self._mutation_s = wait_s
            return EXCEEDED
        bucket.take(partitions, now)
        if not strict:
            self._mutation_s = bucket.wait_s(now)
        return None

    def throttle_ms(self, *, fetch: bool = False) -> int:
        """How long the client has to wait, as its response says. Called when that is made, and mutes the connection."""
        self._count_time()
        now = self._clock()
        wait_s = self._mutation_s
        for bucket, counts in (
            (self.quota.produce, self._produced),
            (self.quota.request, True),
        ):
            if counts and bucket is not None:
                wait_s = max(wait_s, bucket.wait_s(now))
        for bucket in (*self._taken, *(self._fetch_buckets if fetch else ())):
            wait_s = max(wait_s, bucket.wait_s(now))
        self._mute(wait_s)
        return min(math.ceil(wait_s * 1000), MAX_INT)

    def forwarded(self, throttle_ms: int) -> None:
        """Mute the connection for as long as the controller's response says."""
        self._mute(throttle_ms / 1000)

    def begin(self) -> None:
        """The loop works on the request again."""
        self._began = perf_counter()

    def end(self) -> None:
        """The loop has stopped working on the request, which may be answered later."""
        self._count_time()
        self._began = 0.0

    def _count_time(self) -> None:
        if self._began:
            ended = perf_counter()
            if self.quota.request is not None:
                self.quota.request.take(ended - self._began, self._clock())
            self._began = ended

    def _mute(self, wait_s: float) -> None:
        if wait_s and self._connection is not None:
            self._connection.throttle(min(wait_s * 1000, MAX_INT))


def unlimited_meter(connection: Throttled | None) -> Meter:
    """The meter of a client without quotas, for other limits to be counted with."""
    return Meter(ClientQuota({}, "", "", None, None, None, None), connection, monotonic)


class Timed(Generator[Any, Any, Any]):
    """Awaits a coroutine, and counts the time that the loop spends in it, but not the time that it waits."""

    def __init__(self, work: Coroutine[Any, Any, object], meter: Meter) -> None:
        self._work = work
        self._meter = meter

    def __await__(self) -> "Timed":
        return self

    def send(self, value: object, /) -> object:
        return self._step(lambda: self._work.send(value))

    def throw(
        self, thrown: type[BaseException] | BaseException, value: object = None, at: TracebackType | None = None, /
    ) -> object:
        """As asyncio calls it: with an exception. Python's older form has its type, the exception and a traceback."""
        problem = value if isinstance(value, BaseException) else thrown
        return self._step(lambda: self._work.throw(problem))

    def _step(self, step: Callable[[], object]) -> object:
        self._meter.begin()
        try:
            return step()
        finally:
            self._meter.end()


def counted(
    decide: Decide, meter: Meter | None, size: Callable[[ClusterImage, Change], int], *, strict: bool
) -> Decide:
    """A decision of the controller that counts as so many mutations, once, even if it is made several times."""
    if meter is None:
        return decide
    outcome: list[Refusal | None] = []

    def decide_within_quota(image: ClusterImage) -> Change | Refusal:
        decision = decide(image)
        if isinstance(decision, Refusal):
            return decision
        if not outcome:
            outcome.append(meter.mutated(size(image, decision), strict=strict))
        return outcome[0] or decision

    return decide_within_quota
