"""The guarantees of docs/durability.md, on a disk that loses unsynced writes: crashes at seeded points of seeded runs.

Each guarantee has 1,200 runs with MOLDAU_FULL=1 (`make soak`), and a few without. A failure names its seed;
MOLDAU_SEED=17 repeats that run alone.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from support.log.crash_runs import CONFIG, Promise, run_and_crash

FULL = bool(os.environ.get("MOLDAU_FULL"))
SEEDS = [int(os.environ["MOLDAU_SEED"])] if "MOLDAU_SEED" in os.environ else range(1_200 if FULL else 25)

IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # no real disk is needed: LyingDisk loses writes

WRITING = {"append": 20, "flush": 3}
PROMISES = {
    "kill": Promise(
        "whatever was appended survives the death of the process, synced or not",
        {"append": 20, "flush": 2, "checkpoint": 1, "shorten": 1, "sweep": 1, "die": 1, "restart": 0.5},
        power=False,
    ),
    "flush.messages=1": Promise(
        "whatever was acknowledged survives a power cut", {"append": 20, "checkpoint": 1}, flush_messages=1
    ),
    "flush.messages=7": Promise(
        "of what was acknowledged at most the last six records of a partition go with the power",
        {"append": 20, "checkpoint": 1, "die": 1},
        flush_messages=7,
    ),
    "flush": Promise("whatever was synced survives a power cut; of the rest nothing is garbled", WRITING),
    "checkpoint": Promise(
        "checkpoints never make a start trust what was not synced", {**WRITING, "checkpoint": 6, "die": 1}
    ),
    "delete": Promise(
        "what retention or DeleteRecords left survives, and what a checkpoint says is gone stays gone",
        {**WRITING, "shorten": 3, "sweep": 2, "checkpoint": 3},
    ),
    "clean": Promise(
        "compaction keeps the last record of every key, whenever the power goes, and changes none",
        {**WRITING, "clean": 4, "sweep": 2, "checkpoint": 2, "die": 1},
        config=replace(CONFIG, cleanup_policy=frozenset({"compact"})),
    ),
    "topic": Promise(
        "a topic made again under its old name has none of the old one's records, and keeps its own",
        {**WRITING, "replace": 2, "checkpoint": 2, "sweep": 1},
    ),
    "restart": Promise(
        "a clean stop that was cut short is no clean stop", {**WRITING, "restart": 4, "checkpoint": 1, "shorten": 1}
    ),
}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PROMISES)
def test_crashes(name: str) -> None:
    for seed in SEEDS:
        with tempfile.TemporaryDirectory(prefix="moldau-crash-", dir=IN_MEMORY) as directory:
            try:
                run_and_crash(Path(directory), PROMISES[name], seed)
            except Exception as problem:
                again = f"MOLDAU_SEED={seed} pytest {Path(__file__).name} -k {name}"
                raise AssertionError(f"run {seed} of {name!r} broke its guarantee: {problem!r}; {again}") from problem
