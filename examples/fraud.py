"""Alerts for cards that are used too often or for too much within a minute, and word when a card is quiet again.

    moldau streams run examples/fraud.py

A processor keeps the payments of a card for a minute each. Its first alert opens a case, and a timer closes it after
five minutes without another payment.
"""

from dataclasses import dataclass
from datetime import datetime

from moldau.streams import Context, Processor, Streams, Value, Values, json, minutes

LIMIT = 1000.0
MOST = 3


@dataclass
class Payment:
    amount: float
    shop: str


@dataclass
class Alert:
    kind: str
    payments: int = 0
    total: float = 0.0


class Watch(Processor):
    payments = Values(ttl=minutes(1))  # amounts
    case = Value()  # when it closes

    def process(self, value: Payment, context: Context) -> None:
        self.payments.add(value.amount)
        amounts = list(self.payments)
        suspicious = len(amounts) > MOST or sum(amounts) > LIMIT
        closes: datetime | None = self.case.get()
        if closes is None and suspicious:
            context.forward(Alert("opened", len(amounts), sum(amounts)))
        if closes is not None:
            context.cancel(closes)
        if closes is not None or suspicious:
            self.case.set(context.time + minutes(5))
            context.timer(context.time + minutes(5))

    def on_timer(self, time: datetime, context: Context) -> None:
        self.case.clear()
        context.forward(Alert("closed"))


app = Streams("fraud")
payments = app.stream("payments", value=json(Payment))  # by card
payments.process(Watch, returns=Alert, as_="watch").to("alerts")

if __name__ == "__main__":
    app.run()
