"""The inspection queue: order above all, and no batch stuck behind another's failure."""

import threading

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.replication import inspection_queue
from moldau.replication.inspection_queue import InspectionQueue, Job, in_thread
from support.net.loops import on_both_loops, run, turns, until

pytestmark = on_both_loops


def test_jobs_finish_in_the_order_of_their_coming(loop_kind: str) -> None:
    async def main() -> None:
        slow = threading.Event()
        finished: list[object] = []
        queue = InspectionQueue()
        assert not queue.busy

        def wait() -> bytes:
            slow.wait(30)
            return b"first"

        queue.enter(Job(5, in_thread(wait), finished.append))
        queue.enter(Job(6, in_thread(lambda: b"second"), finished.append))
        await turns()
        assert queue.busy
        assert finished == []
        slow.set()
        await queue.stop()
        assert finished == [b"first", b"second"]
        assert not queue.busy

    run(loop_kind, main())


def test_a_job_that_comes_while_another_finishes_comes_after_all(loop_kind: str) -> None:
    async def main() -> None:
        finished: list[object] = []
        queue = InspectionQueue()

        def finish(outcome: bytes | Refusal) -> None:
            finished.append(outcome)
            assert queue.busy  # or the next batch would overtake the one behind this
            queue.enter(Job(1, in_thread(lambda: b"third"), finished.append))

        queue.enter(Job(1, in_thread(lambda: b"first"), finish))
        queue.enter(Job(1, in_thread(lambda: b"second"), finished.append))
        await until(lambda: len(finished) == 3)
        assert finished == [b"first", b"second", b"third"]
        await turns()
        assert not queue.busy

    run(loop_kind, main())


def test_a_failure_is_one_batchs_own(loop_kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        finished: list[object] = []
        queue = InspectionQueue()

        def broken() -> bytes:
            raise ZeroDivisionError

        def badly(outcome: bytes | Refusal) -> None:
            finished.append(outcome)
            raise ZeroDivisionError

        queue.enter(Job(1, in_thread(broken), finished.append))
        queue.enter(Job(1, in_thread(lambda: b"second"), badly))
        queue.enter(Job(1, in_thread(lambda: b"third"), finished.append))
        await queue.stop()
        assert finished == [Refusal.of(WireError.UNKNOWN_SERVER_ERROR), b"second", b"third"]
        queue.enter(Job(1, in_thread(lambda: b"fourth"), finished.append))
        await queue.stop()
        assert finished[-1] == b"fourth"

    run(loop_kind, main())
    assert len(caplog.records) == 2


def test_it_is_full_by_count_and_by_bytes(loop_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection_queue, "BATCHES_AT_MOST", 3)
    monkeypatch.setattr(inspection_queue, "BYTES_AT_MOST", 100)

    async def main() -> None:
        queue = InspectionQueue()
        for _ in range(3):
            assert not queue.full
            queue.enter(Job(1, in_thread(lambda: b""), lambda _: None))
        assert queue.full
        await queue.stop()
        assert not queue.full
        queue.enter(Job(100, in_thread(lambda: b""), lambda _: None))
        assert queue.full
        await queue.stop()
        assert not queue.full

    run(loop_kind, main())
