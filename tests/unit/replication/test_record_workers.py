"""The pool of worker processes: started as needed, replaced when lost, bounded in what it remembers."""

import asyncio
import json
import os
import signal

import pytest

from moldau.base.errors import Refusal
from moldau.log.settings import LogConfig
from moldau.replication import record_workers
from moldau.replication.record_rules import Framing, Mode, PackedRules, RecordRules, SchemaText, SideRule, Storage
from moldau.replication.record_workers import RecordWorkers, WorkerLost, WorkerSettings
from support.log.batches import Written, batch
from support.net.loops import on_both_loops, run

pytestmark = on_both_loops

ONE, TWO = b"1", b"2"


def rules(least: int) -> PackedRules:
    schema = SchemaText("JSON", json.dumps({"type": "integer", "minimum": least}))
    rule = SideRule("the schema", Mode.REJECT, Framing.IGNORED, (0,), ((0, schema),))
    return PackedRules.of(RecordRules("orders", Storage.of(LogConfig()), 1 << 20, (), (rule,)))


def pool(processes: int = 1, timeout_s: float = 20) -> RecordWorkers:
    return RecordWorkers(lambda: WorkerSettings(processes, timeout_s))


async def accepts(workers: RecordWorkers, packed: PackedRules, value: bytes) -> bool:
    checked = await workers.check(packed, batch(Written(value)), 0)
    assert checked.refusal is None or isinstance(checked.refusal, Refusal)
    return checked.refusal is None


def test_processes_start_as_batches_come(loop_kind: str) -> None:
    async def main() -> None:
        workers = pool(processes=2)
        assert workers.pids == []
        assert await accepts(workers, rules(1), ONE)
        assert len(workers.pids) == 1
        assert (
            await asyncio.gather(*(accepts(workers, rules(least), ONE) for least in range(6)))
            == [True] * 2 + [False] * 4
        )
        assert len(workers.pids) == 2
        await workers.stop()
        with pytest.raises(WorkerLost, match="the broker is stopping"):
            await accepts(workers, rules(1), ONE)

    run(loop_kind, main())


def test_a_worker_forgets_rules_but_not_those_it_needs(loop_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_workers, "RULES_AT_MOST", 2)

    async def main() -> None:
        workers = pool()
        for _ in range(2):
            assert [await accepts(workers, rules(least), TWO) for least in range(5)] == [True] * 3 + [False] * 2
        await workers.stop()

    run(loop_kind, main())


def test_a_worker_that_dies_costs_its_batch_only(loop_kind: str) -> None:
    async def main() -> None:
        workers = pool(timeout_s=1)
        assert await accepts(workers, rules(1), ONE)
        (pid,) = workers.pids
        os.kill(pid, signal.SIGSTOP)
        waiting = [asyncio.ensure_future(accepts(workers, rules(1), value)) for value in (ONE, ONE)]
        with pytest.raises(WorkerLost, match="took longer than 1 s"):
            await waiting[0]
        assert await waiting[1], "the next in line gets a new worker"
        assert pid not in workers.pids
        os.kill(workers.pids[0], signal.SIGKILL)
        await workers.stop()

    run(loop_kind, main())


def test_a_stop_does_not_wait_for_checks(loop_kind: str) -> None:
    async def main() -> None:
        workers = pool()
        assert await accepts(workers, rules(1), ONE)
        os.kill(workers.pids[0], signal.SIGSTOP)
        waiting = [asyncio.ensure_future(accepts(workers, rules(1), ONE)) for _ in range(3)]
        await asyncio.sleep(0)
        await workers.stop()
        for each in waiting:
            with pytest.raises(WorkerLost):
                await each

    run(loop_kind, main())


def test_what_cannot_start_is_told(loop_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_workers, "PROGRAM", "moldau.no_such_module")

    async def main() -> None:
        with pytest.raises(WorkerLost, match="no process can be started: it ended, or was not ready in time"):
            await accepts(pool(), rules(1), ONE)

    run(loop_kind, main())
