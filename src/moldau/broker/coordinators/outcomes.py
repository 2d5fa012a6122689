"""Whether an append to a coordinator's log failed."""

from moldau.base.errors import Refusal, WireError
from moldau.base.later import NowOrLater
from moldau.replication.appender import Outcome

# The record is committed, with fewer replicas in sync than min.insync.replicas: good enough for a coordinator.
COMMITTED_BELOW_MIN_ISR = WireError.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def failed(outcome: NowOrLater[Outcome] | None) -> Refusal | None:
    """Why the append failed or was lost; None if it is committed or pending."""
    return outcome if isinstance(outcome, Refusal) and outcome.error is not COMMITTED_BELOW_MIN_ISR else None
