"""What a coordinator makes of the outcome of an append."""

from moldau.base.errors import Refusal, WireError
from moldau.base.later import NowOrLater
from moldau.replication.partition import Outcome

# It is in the log and committed, though by then by fewer replicas than producers ask for: to a coordinator it is so.
COMMITTED = WireError.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def failed(outcome: NowOrLater[Outcome] | None) -> Refusal | None:
    """Why nothing was written, or why what was written is lost; None if it is there, or on its way."""
    return outcome if isinstance(outcome, Refusal) and outcome.error is not COMMITTED else None
