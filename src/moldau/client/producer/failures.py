"""Failures of records that nobody looked at, and what librdkafka says of its connections. Serves no reports."""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.client.errors import AuthenticationFailed, ClientError, DeliveryFailed, KafkaFailure, client_error
from moldau.client.producer.delivery import MOST_ERRORS

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException

logger = logging.getLogger("moldau.client.producer")

CAUSED_ELSEWHERE = ("MSG_TIMED_OUT", "PURGE_QUEUE", "TIMED_OUT", "TRANSPORT")
REPEAT_S = 10.0  # failed records are logged this often
RECENT_S = 60.0  # librdkafka repeats the same failure of a connection every 30 s


class UnseenFailures:
    """Counts failed records whose outcome nobody asked for; not thread-safe.

    A failed outcome holds `mark` until someone looks at it, so no list of them is needed. `take` starts anew.
    """

    def __init__(self) -> None:
        self.mark = object()
        self.count = 0
        self._first: list[ClientError] = []
        self._logged_at = float("-inf")
        self._not_logged = 0

    def add(self, error: ClientError, count: int) -> None:
        self.count += count
        if len(self._first) < MOST_ERRORS:
            self._first.append(error)

    def discard(self, error: ClientError, count: int) -> None:
        self.count -= count
        self._first = [each for each in self._first if each is not error]

    def take(self) -> DeliveryFailed | None:
        """The failures so far, which are forgotten."""
        count, first = self.count, self._first
        self.mark, self.count, self._first = object(), 0, []
        if not count:
            return None
        errors = [
            inner for error in first for inner in (error.errors if isinstance(error, DeliveryFailed) else [error])
        ]
        return DeliveryFailed(count, errors[:MOST_ERRORS] or [ClientError("the first errors were looked at")])

    def log(self, error: ClientError, count: int) -> None:
        """Log the failure, and after it only how many there were, every `REPEAT_S`."""
        now = time.monotonic()
        self._not_logged += count
        if now - self._logged_at < REPEAT_S:
            return
        logger.error("Records were not delivered: %d since the last line; this time: %s", self._not_logged, error)
        self._logged_at, self._not_logged = now, 0


class Connection:
    """What librdkafka reported of the cluster: unreachable, credentials refused, a fatal error."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._reason = ""  # of the last failed connection
        self._failed_at = float("-inf")
        self.unreachable = False
        self.refusal: AuthenticationFailed | None = None
        self.fatal: KafkaFailure | None = None
        self.drop_queued: Callable[[], None] | None = None  # records that wait for a broker

    def on_error(self, error: "KafkaError") -> None:
        """librdkafka's callback; with it fatal errors come out of poll instead."""
        failure = client_error(error)
        if isinstance(failure, AuthenticationFailed):
            if self.refusal is None:
                logger.error("Authentication failed at %s: %s", self._bootstrap, failure)
            self.refusal = failure
        elif failure.name == "ALL_BROKERS_DOWN":
            if not self.unreachable:
                reason = self.refusal or self._reason or failure.problem
                logger.warning("No broker of %s can be reached; records wait: %s", self._bootstrap, reason)
            self.unreachable = True
        else:
            self._reason, self._failed_at = failure.problem, time.monotonic()
            logger.debug("Reported by librdkafka: %s", failure)
        if self.drop_queued is not None and self.refused():
            self.drop_queued()

    def refused(self) -> bool:
        """Whether waiting is useless: no broker can be reached, because of the credentials."""
        return self.unreachable and self.refusal is not None

    def on_fatal(self, error: "KafkaException") -> None:
        if self.fatal is None:
            self.fatal = client_error(error)
            logger.error("The producer cannot go on; make a new one: %s", self.fatal)

    def recovered(self) -> None:
        if self.unreachable:
            logger.info("Brokers of %s can be reached again.", self._bootstrap)
        self.unreachable = False
        self.refusal = None
        self._failed_at = float("-inf")

    def explain(self, error: KafkaFailure) -> KafkaFailure:
        """A timeout, or a dropped record, with its cause, if librdkafka told one."""
        if error.name not in CAUSED_ELSEWHERE:
            return error
        if self.refusal is not None:
            return AuthenticationFailed(self.refusal.name, self.refusal.problem)
        if error.name != "PURGE_QUEUE" and (cause := self._cause()):
            return KafkaFailure(error.name, f"{error.problem}: {cause}", retriable=error.retriable)
        return error

    def reason(self) -> str:
        """Why nothing can be sent now, as the end of a sentence; empty if nothing is known."""
        cause = self.refusal or self._cause()
        return f": {cause}" if cause else ""

    def _cause(self) -> str:
        """Why a connection failed. About one of 150 new producers is never told by librdkafka 2.16 that all brokers are
        down: it compares its count of brokers while it adds the coordinator's. So a recent failure will do.
        """
        recent = time.monotonic() - self._failed_at < RECENT_S
        return self._reason if self.unreachable or recent else ""
