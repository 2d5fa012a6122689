"""Orders: a thread that produces orders at a steady rate until it is stopped."""

import random
import threading
import time
from datetime import UTC, datetime
from types import TracebackType

from moldau import Producer

TOPIC = "orders"
CENTS = {"bread": 390, "butter": 250, "coffee": 890, "honey": 640, "plums": 420}
PER_SECOND = 200
TICKS_PER_SECOND = 10
CLOSE_S = 5.0


class Orders:
    """`with Orders(bootstrap) as orders: orders.sent`"""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self._producer = Producer(bootstrap, linger=0.02)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="orders", daemon=True)

    def __enter__(self) -> "Orders":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.close(CLOSE_S)

    def _produce(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            due += 1 / TICKS_PER_SECOND
            for _ in range(PER_SECOND // TICKS_PER_SECOND):
                product, order = self._order()
                self._producer.send(TOPIC, order, key=product)
                self.sent += 1

    def _order(self) -> tuple[str, dict[str, object]]:
        product = random.choice(list(CENTS))
        cents = CENTS[product] * random.randint(1, 5)
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return product, {"order": self.sent, "product": product, "cents": cents, "at": at}
