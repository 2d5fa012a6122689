"""TurnBatch: decisions of one shard in one turn of the event loop that will be one batch. Appends nothing itself.

A decision that is alone in its turn would only wait, so the first one of a turn is held back only if the last turn had
several. The second one shows that there are several, and is held back in any case.
"""

from typing import Final

from moldau.base.coordination import Decision

MAX_RECORDS: Final = 1_000  # of a batch; with large metadata it may be over max.message.bytes all the same


class TurnBatch:
    __slots__ = ("_decided", "_decisions", "_expects_several", "_records")

    def __init__(self) -> None:
        self._decisions: list[Decision] = []
        self._records = 0
        self._decided = 0  # in this turn, held back or not
        self._expects_several = False

    def __len__(self) -> int:
        return len(self._decisions)

    @property
    def full(self) -> bool:
        return self._records >= MAX_RECORDS

    def begin(self) -> bool:
        """Count a decision. Whether it is the first one of the turn."""
        self._decided += 1
        return self._decided == 1

    def add(self, decision: Decision) -> bool:
        """Hold back the decision counted last; False: it is alone, as far as is known, and better appended at once."""
        if self._decided == 1 and not self._expects_several:
            return False
        self._decisions.append(decision)
        self._records += len(decision.records)
        return True

    def take(self) -> list[Decision]:
        """The decisions held back, in their order. None is left."""
        taken, self._decisions, self._records = self._decisions, [], 0
        return taken

    def end_turn(self) -> None:
        self._expects_several = self._decided > 1
        self._decided = 0


def joined(decisions: list[Decision]) -> Decision:
    """One decision that has the records, timers and replies of all."""
    whole = Decision()
    for each in decisions:
        whole.records += each.records
        whole.timers += each.timers
        whole.replies += each.replies
    # The last first: a connection sends in the order of its requests, so its first reply releases all of them at once.
    whole.replies.reverse()
    return whole
