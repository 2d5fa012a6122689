"""Quotas: the entities that have some, Kafka's precedence among them, and token buckets. Stores and sends nothing.

An entity is a user, a client id, both, or an IP address, each by name or as the default for all without one. A client
has at most one quota of each kind: that of the most specific entity that has one.

A token bucket fills with the quota's rate and holds a moment of it. What a client sends or gets is taken out, below
zero if it must be; then the client is throttled until the bucket is at zero again. So within any time T a client gets
at most its rate × (T + that moment), and what it was about to get when it ran out. Kafka counts in a sliding window of
ten seconds instead, which lets a client take all ten at once, wait, and do so again. Only controller mutations are in
token buckets there (KIP-599).

Time is an argument: seconds of any clock that does not go back.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
MAX_DOUBLE: Final = 1.7976931348623157e308


class Default(Enum):
    """The name of the entity that stands for all users, client ids or addresses without a quota of their own."""

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT
Name = str | Default | None  # None: the entity does not have this part


class Entity(NamedTuple):
    """What a quota is set for."""

    user: Name = None
    client_id: Name = None
    ip: Name = None


class QuotaKey(NamedTuple):
    """A kind of quota, by its name in Kafka."""

    name: str
    most: float
    unit: str
    whole: bool = True  # no fractions
    of_ip: bool = False  # for addresses; all others are for users and client ids


PRODUCE: Final = QuotaKey("producer_byte_rate", MAX_LONG, "bytes/s")
FETCH: Final = QuotaKey("consumer_byte_rate", MAX_LONG, "bytes/s")
REQUEST: Final = QuotaKey("request_percentage", MAX_DOUBLE, "%", whole=False)
MUTATION: Final = QuotaKey("controller_mutation_rate", MAX_DOUBLE, "partitions/s", whole=False)
CONNECTION: Final = QuotaKey("connection_creation_rate", MAX_INT, "connections/s", of_ip=True)
QUOTA_KEYS: Final = {key.name: key for key in (PRODUCE, FETCH, REQUEST, MUTATION, CONNECTION)}


def wrong_value(key: QuotaKey, value: float) -> str | None:
    """Why a quota cannot have this value; None: it can."""
    if not value > 0:  # or NaN
        return f"Quota {key.name} must be greater than 0"
    if value > key.most:
        return f"Proposed value for {key.name} is too large for {'an INT' if key.most == MAX_INT else 'a LONG'}."
    if key.whole and not float(value).is_integer():
        return f"{key.name} cannot be a fractional value."
    return None


Quotas = Mapping[Entity, Mapping[str, float]]  # the values of each entity by the names of quota keys


class Limit(NamedTuple):
    """A quota that holds for a client, and the bucket that counts for it: clients with the same one share it."""

    rate: float
    bucket: tuple[str, str | None, str | None]  # the quota key, and the user and client id if each has its own


def client_limit(quotas: Quotas, key: QuotaKey, user: str, client_id: str) -> Limit | None:
    """The quota of a client: that of the first entity that has one, in Kafka's order."""
    for entity in (
        Entity(user, client_id),
        Entity(user, DEFAULT),
        Entity(user),
        Entity(DEFAULT, client_id),
        Entity(DEFAULT, DEFAULT),
        Entity(DEFAULT),
        Entity(None, client_id),
        Entity(None, DEFAULT),
    ):
        rate = quotas.get(entity, _NONE).get(key.name)
        if rate is not None:
            named = (user if entity.user is not None else None, client_id if entity.client_id is not None else None)
            return Limit(rate, (key.name, *named))
    return None


def ip_limit(quotas: Quotas, ip: str) -> float | None:
    """How many connections per second an address may create; None: any number."""
    for entity in (Entity(ip=ip), Entity(ip=DEFAULT)):
        rate = quotas.get(entity, _NONE).get(CONNECTION.name)
        if rate is not None:
            return rate
    return None


_NONE: Final[Mapping[str, float]] = {}


class Window(NamedTuple):
    """How much of its rate a token bucket allows for, in seconds."""

    burst_s: float  # that it holds: what a client which paused may use at once
    first_s: float  # that it begins with
    longest_s: float = float("inf")  # that a client has to wait at most; the rest is forgiven


class TokenBucket:
    """Counts against one quota. Rate and window may be changed at any time."""

    __slots__ = ("_at", "_tokens", "rate", "window")

    def __init__(self, rate: float, window: Window, now: float) -> None:
        self.rate = rate
        self.window = window
        self._tokens = rate * window.first_s
        self._at = now

    def take(self, amount: float, now: float) -> None:
        """Count an amount, whether the bucket has as much or not. A negative one is given back."""
        self._fill(now)
        self._tokens = max(self._tokens - amount, -self.rate * self.window.longest_s)

    def wait_s(self, now: float) -> float:
        """Until the bucket is at zero again; 0 if it is not below."""
        self._fill(now)
        return -self._tokens / self.rate if self._tokens < 0 else 0.0

    def is_full(self, now: float) -> bool:
        self._fill(now)
        return self._tokens >= self.rate * self.window.burst_s

    def _fill(self, now: float) -> None:
        passed = now - self._at
        if passed > 0:
            self._at = now
            self._tokens += self.rate * passed
        self._tokens = min(self._tokens, self.rate * self.window.burst_s)
