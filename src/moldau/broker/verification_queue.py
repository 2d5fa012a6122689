"""Transactional Produce requests that wait for verification by a remote coordinator: in order, producer by producer.

A producer has several requests in flight. While the first is verified, the ones behind it must neither be appended
before it nor be refused for sequences that come too early: they queue, and their sequences are checked in their turn.
Requests of other producers to the same partitions do not wait.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.base.later import Later, NowOrLater
from moldau.broker.verification import Verifications
from moldau.net.reply import BadRequest, Parked, Reply

logger = logging.getLogger("moldau.broker")

QUEUED_BYTES_AT_MOST = 64 * 1024 * 1024
FULL = Refusal(WireError.NOT_ENOUGH_REPLICAS, "Too many batches wait for the verification of their transactions.")

Verify = Callable[[memoryview], NowOrLater[Verifications]]
Append = Callable[[memoryview, Verifications], Reply]


class QueuedProduce(NamedTuple):
    frame: memoryview  # a copy: frames are borrowed
    verify: Verify
    append: Append
    reply: Parked


class VerificationQueue:
    def __init__(self) -> None:
        self._queues: dict[int, deque[QueuedProduce]] = {}  # by producer id; the first one is being verified
        self._bytes = 0

    def serve(self, producer_id: int, frame: memoryview, verify: Verify, append: Append) -> Reply:
        """Verify a request, then append it: now, or in its turn."""
        queue = self._queues.get(producer_id)
        if queue is None:
            verifications = verify(frame)
            if not isinstance(verifications, Later):
                return append(frame, verifications)
            queued = self._enqueue(frame, verify, append)
            self._queues[producer_id] = deque([queued])
            self._when_verified(producer_id, queued, verifications)
            return queued.reply
        if self._bytes + len(frame) > QUEUED_BYTES_AT_MOST:
            return append(frame, FULL)
        queued = self._enqueue(frame, verify, append)
        queue.append(queued)
        return queued.reply

    def _enqueue(self, frame: memoryview, verify: Verify, append: Append) -> QueuedProduce:
        self._bytes += len(frame)
        return QueuedProduce(memoryview(bytes(frame)), verify, append, Parked())

    def _when_verified(self, producer_id: int, queued: QueuedProduce, pending: Later[Verifications]) -> None:
        def verified(verifications: Verifications) -> None:
            self._finish(queued, verifications)
            self._next(producer_id)

        pending.then(verified)

    def _next(self, producer_id: int) -> None:
        """The first of the queue is done: serve those behind it, until one has to wait again."""
        queue = self._queues[producer_id]
        queue.popleft()
        while queue:
            queued = queue[0]
            verifications = _verify_guarded(queued)
            if isinstance(verifications, Later):
                self._when_verified(producer_id, queued, verifications)
                return
            self._finish(queued, verifications)
            queue.popleft()
        del self._queues[producer_id]

    def _finish(self, queued: QueuedProduce, verifications: Verifications) -> None:
        self._bytes -= len(queued.frame)
        try:
            reply = queued.append(queued.frame, verifications)
        except BadRequest as refused:
            queued.reply.resolve(refused)
            return
        except Exception:
            logger.exception("A Produce request failed after its verification; closing its connection")
            queued.reply.resolve(BadRequest("an internal error"))
            return
        if not isinstance(reply, Parked):
            queued.reply.resolve(reply)
        elif reply.done:
            queued.reply.resolve(reply.reply)
        else:
            parked = reply
            parked.on_done(lambda: queued.reply.resolve(parked.reply))


def _verify_guarded(queued: QueuedProduce) -> NowOrLater[Verifications]:
    try:
        return queued.verify(queued.frame)
    except Exception:
        logger.exception("A queued Produce request could not be verified; refusing it with UNKNOWN_SERVER_ERROR")
        return Refusal.of(WireError.UNKNOWN_SERVER_ERROR)
