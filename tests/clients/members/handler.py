"""A consumer with a handler that fails as its settings say, for tests that kill, interrupt and rebalance it.

`python handler.py '{"bootstrap": …, "topic": …, "group": …, "name": …}'` runs until SIGTERM or Ctrl-C, and tells a line
for each message that begins and each that is processed. Values are numbers. Those that end with the digit `odd` fail at
first, those that end with `bad` always.
"""

import random
import signal
import time
from typing import Any

from told import settings, tell

from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.rebalances import RebalanceListener
from moldau.client.consumer.retries import Backoff, Retry
from moldau.client.message import Message


class Listener(RebalanceListener):
    def on_assigned(self, partitions: Any) -> None:
        tell("assigned", partitions=sorted(partitions))

    def on_revoked(self, partitions: Any) -> None:
        tell("revoked", partitions=sorted(partitions))


class Handler:
    def __init__(self) -> None:
        given = settings()
        self.given = given
        retry = Retry(
            times=given.get("times", 2),
            backoff=Backoff(first=0.05, most=0.2),
            topic=given.get("retry"),
            dead=given.get("dead"),
        )
        self.failed: set[int] = set()
        self.consumer: Consumer[Any, str] = Consumer(
            given["bootstrap"],
            given["topic"],
            group=given["group"],
            value=str,
            retry=retry,
            concurrency=given.get("concurrency", 4),
            order=given.get("order", "partition"),
            listener=Listener(),
            commit_interval=0.1,
            protocol=given.get("protocol", "classic"),
            properties={"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}
            if given.get("protocol", "classic") == "classic"
            else {},
        )

    def handle(self, message: Message[Any, str]) -> None:
        number = int(message.value)
        tell("begun", number=number)
        time.sleep(random.random() * self.given.get("most_s", 0.01))
        if number % 10 == self.given.get("bad") or (number % 10 == self.given.get("odd") and self._fails(message)):
            raise ConnectionError(f"{number} fails")
        tell("processed", number=number, key=(message.raw_key or b"").decode(), topic=message.topic)

    def _fails(self, message: Message[Any, str]) -> bool:
        """At first: where there is a retry topic, in any other."""
        if self.given.get("retry") is not None:
            return message.topic != self.given["retry"]
        first = message.offset not in self.failed
        self.failed.add(message.offset)
        return first


if __name__ == "__main__":
    handler = Handler()
    signal.signal(signal.SIGTERM, lambda *_: handler.consumer.wakeup())
    with handler.consumer:
        try:
            handler.consumer.run(handler.handle)
        except KeyboardInterrupt:
            tell("interrupted")
    tell("left")
