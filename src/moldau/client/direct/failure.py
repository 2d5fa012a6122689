"""Failure: a Kafka error as a value, with its code, name and message. Raises nothing.

`base.errors` has the errors that Moldau's brokers return. Other brokers return more: the ones this client can get are
listed here, and any other keeps its number.
"""

from dataclasses import dataclass
from typing import Final

from moldau.base.errors import WireError

# Errors that only other brokers return, and whether they are retriable.
OTHER_BROKERS_ERRORS: Final = {
    4: ("INVALID_FETCH_SIZE", False),
    5: ("LEADER_NOT_AVAILABLE", True),
    8: ("BROKER_NOT_AVAILABLE", False),
    9: ("REPLICA_NOT_AVAILABLE", True),
    20: ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", True),
    30: ("GROUP_AUTHORIZATION_FAILED", False),
    31: ("CLUSTER_AUTHORIZATION_FAILED", False),
    33: ("UNSUPPORTED_SASL_MECHANISM", False),
    34: ("ILLEGAL_SASL_STATE", False),
    43: ("UNSUPPORTED_FOR_MESSAGE_FORMAT", False),
    46: ("DUPLICATE_SEQUENCE_NUMBER", False),
    58: ("SASL_AUTHENTICATION_FAILED", False),
    59: ("UNKNOWN_PRODUCER_ID", False),
    72: ("LISTENER_NOT_FOUND", True),
    78: ("OFFSET_NOT_AVAILABLE", True),
    89: ("THROTTLING_QUOTA_EXCEEDED", True),
    103: ("INCONSISTENT_TOPIC_ID", True),
    109: ("OFFSET_MOVED_TO_TIERED_STORAGE", False),
    129: ("REBOOTSTRAP_REQUIRED", False),
}
DUPLICATE_SEQUENCE_NUMBER: Final = 46
SASL_AUTHENTICATION_FAILED: Final = 58

# A newer producer has the transactional id: this one must be closed and created again.
FENCING: Final = frozenset(
    {
        WireError.INVALID_PRODUCER_EPOCH,
        WireError.PRODUCER_FENCED,
        WireError.INVALID_PRODUCER_ID_MAPPING,
        WireError.TRANSACTION_COORDINATOR_FENCED,
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An expected failure. `retriable` is Kafka's classification; the function that returns it has stopped retrying."""

    code: int
    name: str
    message: str
    retriable: bool = False

    @property
    def fenced(self) -> bool:
        return self.code in FENCING

    @property
    def abortable(self) -> bool:
        """The transaction must be aborted; its producer stays usable."""
        return self.code == WireError.TRANSACTION_ABORTABLE

    def __str__(self) -> str:
        return f"{self.message} ({self.name})"


def failure_of(code: int, message: str) -> Failure:
    """The failure for an error code; the message says what was requested."""
    if code in OTHER_BROKERS_ERRORS:
        name, retriable = OTHER_BROKERS_ERRORS[code]
        return Failure(code, name, message, retriable)
    try:
        known = WireError(code)
    except ValueError:
        return Failure(code, f"error {code}", message)
    return Failure(code, known.name, f"{message}: {known.doc[0].lower()}{known.doc[1:-1]}", known.retriable)


def unreachable(address: str, error: Exception) -> Failure:
    """A network error as REQUEST_TIMED_OUT or NETWORK_EXCEPTION."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    code = WireError.REQUEST_TIMED_OUT if isinstance(error, TimeoutError) else WireError.NETWORK_EXCEPTION
    return Failure(code, code.name, f"{address}: {reason}", retriable=True)
