"""Produce requests of transactions that wait for their coordinator on another broker: in order, producer by producer.

A producer has several requests under way. While the first of them is asked about, those behind it must not be written
before it, nor be refused for coming too early: they wait their turn, and their sequences are checked when it comes.
What other producers send to the same partitions goes on meanwhile.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later, NowOrLater
from moldau.broker.admission import Proofs
from moldau.net.reply import BadRequest, Parked, Reply

log = logging.getLogger("moldau.broker")

HELD_AT_MOST = 64 * 1024 * 1024  # bytes of requests
FULL = Refusal(WireError.NOT_ENOUGH_REPLICAS, "Too many batches wait for their transactions to be verified.")

Prove = Callable[[memoryview], NowOrLater[Proofs]]
GoOn = Callable[[memoryview, Proofs], Reply]


class Held(NamedTuple):
    frame: memoryview  # a copy: frames are borrowed
    prove: Prove
    go_on: GoOn
    reply: Parked


class Holding:
    def __init__(self) -> None:
        self._queues: dict[int, deque[Held]] = {}  # by producer id; whoever has one waits for an answer
        self._bytes = 0

    def serve(self, producer_id: int, frame: memoryview, prove: Prove, go_on: GoOn) -> Reply:
        """Have a request proved, then go on with it: at once, or when its turn has come."""
        queue = self._queues.get(producer_id)
        if queue is None:
            proofs = prove(frame)
            if not isinstance(proofs, Later):
                return go_on(frame, proofs)
            held = self._hold(frame, prove, go_on)
            self._queues[producer_id] = deque([held])
            self._when_proved(producer_id, held, proofs)
            return held.reply
        if self._bytes + len(frame) > HELD_AT_MOST:
            return go_on(frame, FULL)
        held = self._hold(frame, prove, go_on)
        queue.append(held)
        return held.reply

    def _hold(self, frame: memoryview, prove: Prove, go_on: GoOn) -> Held:
        self._bytes += len(frame)
        return Held(memoryview(bytes(frame)), prove, go_on, Parked())

    def _when_proved(self, producer_id: int, held: Held, pending: Later[Proofs]) -> None:
        def proved(proofs: Proofs) -> None:
            self._finish(held, proofs)
            self._next(producer_id)

        pending.then(proved)

    def _next(self, producer_id: int) -> None:
        """The first of the queue is done: those behind it, until one has to wait again."""
        queue = self._queues[producer_id]
        queue.popleft()
        while queue:
            held = queue[0]
            proofs = _guarded(held)
            if isinstance(proofs, Later):
                self._when_proved(producer_id, held, proofs)
                return
            self._finish(held, proofs)
            queue.popleft()
        del self._queues[producer_id]

    def _finish(self, held: Held, proofs: Proofs) -> None:
        self._bytes -= len(held.frame)
        try:
            reply = held.go_on(held.frame, proofs)
        except BadRequest as refused:
            held.reply.resolve(refused)
            return
        except Exception:
            log.exception("a produce request that had waited failed")
            held.reply.resolve(BadRequest("an internal error"))
            return
        if not isinstance(reply, Parked):
            held.reply.resolve(reply)
        elif reply.done:
            held.reply.resolve(reply.reply)
        else:
            parked = reply
            parked.on_done(lambda: held.reply.resolve(parked.reply))


def _guarded(held: Held) -> NowOrLater[Proofs]:
    try:
        return held.prove(held.frame)
    except Exception:
        log.exception("a produce request that had waited could not be proved")
        return Refusal.of(WireError.UNKNOWN_SERVER_ERROR)
