"""Alerts for cards that are used too often or for too much within a minute.

    moldau streams describe examples/fraud.py

A sliding window has all payments that are at most a minute apart, wherever the minute begins, so that four payments
around a full minute are seen as well. A card that goes on is alerted again.
"""

from dataclasses import dataclass, field

from moldau.streams import Sliding, Streams, json, minutes, seconds

LIMIT = 1000.0
MOST = 3


@dataclass
class Payment:
    card: str
    amount: float
    shop: str


@dataclass
class Burst:
    """The payments of one window."""

    count: int = 0
    total: float = 0.0
    shops: list[str] = field(default_factory=list)


def add(payment: Payment, burst: Burst) -> Burst:
    shops = burst.shops if payment.shop in burst.shops else [*burst.shops, payment.shop]
    return Burst(burst.count + 1, burst.total + payment.amount, shops)


def reason(burst: Burst) -> str:
    if burst.count > MOST:
        return f"{burst.count} payments in {len(burst.shops)} shops within a minute"
    return f"{burst.total:.2f} within a minute"


app = Streams("fraud")

bursts = (
    app.stream("payments", value=json(Payment))
    .group_by("card")
    .windowed(Sliding(minutes(1), grace=seconds(10)))
    .aggregate(Burst, add, returns=Burst, as_="bursts")
)
(
    bursts.to_stream()
    .filter(lambda burst: burst.count > MOST or burst.total > LIMIT)
    .map_values(reason)
    .select_key("key")
    .to("alerts")
)
