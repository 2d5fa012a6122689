"""The cleaner beside Apache Kafka's, on copies of the same log.

Both clean each copy once, from its beginning, one copy after the other in one process; the first one warms it and does
not count. Ours is the program that the broker runs, asked as the broker asks it; theirs is called by `Clean.java`.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

from benchmarks.jars import Jars
from benchmarks.peers import cpu_seconds
from moldau.log.compaction.choice import measure, plan
from moldau.log.compaction.work import Work
from moldau.log.log import Log
from moldau.log.settings import LogConfig
from moldau.wire.batch import read_header
from moldau.wire.compression import Codec
from moldau.wire.records import Record, encode_batch

Say = Callable[[str], None]
PROGRAM = Path(__file__).parent / "Clean.java"
NOW = 1_800_000_000_000
TOPIC_ID = UUID(int=1)
BATCH_RECORDS = 200
VALUE_BYTES = 100
SEGMENT_BYTES = 64 * 1024 * 1024
KEY_MEMORY = 134_217_728 * 9 // 10  # a broker's defaults
CHUNK = 524_288 // 2


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    codec: Codec
    records_per_key: int


CASES = (
    Case("no codec, 10 records per key", Codec.NONE, 10),
    Case("zstd, 10 records per key", Codec.ZSTD, 10),
    Case("no codec, 2 records per key", Codec.NONE, 2),
)


def batches(case: Case, records: int, now: int = NOW) -> list[bytes]:
    """Random keys, values that hardly compress."""
    source = random.Random(5)
    noise = source.randbytes(1 << 16)
    keys = max(records // case.records_per_key, 1)
    made = []
    for first in range(0, records, BATCH_RECORDS):
        chosen = []
        for place in range(BATCH_RECORDS):
            at = source.randrange(len(noise) - VALUE_BYTES)
            key = b"key-%08d" % source.randrange(keys)
            chosen.append(Record(place, now + first + place, key, noise[at : at + VALUE_BYTES]))
        made.append(encode_batch(chosen, codec=case.codec))
    return made


def _log(directory: Path, *, clean: bool) -> Log:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES)
    return Log.open(directory / "topic-0", "topic-0", config, clean=clean, now=NOW, topic_id=TOPIC_ID)


def write_log(directory: Path, case: Case, records: int) -> None:
    """A partition of a stopped broker; the last segment holds one batch."""
    log = _log(directory, clean=False)
    for data in (*batches(case, records), None, *batches(case, 1)):
        if data is None:
            log.roll(NOW)
        else:
            log.append(read_header(data), data, 0, NOW)
    log.close()


@dataclass(frozen=True, slots=True)
class Speed:
    """Figures of one cleaning."""

    records: int
    kept: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.records / self.seconds

    @property
    def per_cpu_second(self) -> float:
        return self.records / self.cpu_seconds


def clean_by_us(copies: list[Path]) -> list[Speed]:
    command = [sys.executable, "-m", "moldau.replication.cleaner_main"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        speeds = [_ask(process, _work(copy)) for copy in copies]
        process.kill()
    return speeds


def _work(copy: Path) -> Work:
    log = _log(copy, clean=True)
    dirt = measure(log, log.end_offset, NOW)
    work = plan(log, dirt, NOW, KEY_MEMORY, CHUNK)
    log.close()
    return work


def _ask(process: "subprocess.Popen[str]", work: Work) -> Speed:
    assert process.stdin is not None
    assert process.stdout is not None
    began, cpu = time.perf_counter(), cpu_seconds(process.pid)
    process.stdin.write(json.dumps({"work": work.to_json(), "bytes_per_second": sys.float_info.max}) + "\n")
    process.stdin.flush()
    for line in process.stdout:
        [(what, value)] = json.loads(line).items()
        if what == "done":
            seconds, used = time.perf_counter() - began, cpu_seconds(process.pid) - cpu
            return Speed(value["records_read"], value["records_kept"], seconds, used)
        if what != "cleaned":
            raise RuntimeError(f"cleaning failed: {value}")
    raise RuntimeError("the cleaner ended")


def clean_by_kafka(copies: list[Path], jars: Jars) -> list[Speed]:
    settings = f"segment.bytes={SEGMENT_BYTES}"
    paths = [str(copy / "topic-0") for copy in copies]
    command = jars.command(str(PROGRAM), str(NOW), settings, *paths, options=("-Xmx1g",))
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return [Speed(row["read"], row["kept"], row["seconds"], row["cpu_seconds"]) for row in rows]


def speeds(scratch: Path, jars: Jars | None, records: int, rounds: int, say: Say) -> list[dict[str, Any]]:
    rows = []
    for case in CASES:
        say(f"compaction: {case.name}")
        source = scratch / "source"
        write_log(source, case, records)
        ours = clean_by_us(_copies(source, scratch, "ours", rounds))[1:]
        theirs = clean_by_kafka(_copies(source, scratch, "theirs", rounds), jars)[1:] if jars else []
        if theirs and {each.kept for each in ours} != {each.kept for each in theirs}:
            raise RuntimeError(f"ours kept {ours[0].kept} records, theirs {theirs[0].kept}")
        rows.append({"name": case.name, "records": records, "ours": _figures(ours), "theirs": _figures(theirs)})
        for path in scratch.iterdir():
            shutil.rmtree(path)
    return rows


def _figures(found: list[Speed]) -> dict[str, float] | None:
    if not found:
        return None
    return {
        "records_per_s": median(each.per_second for each in found),
        "records_per_cpu_s": median(each.per_cpu_second for each in found),
    }


def _copies(source: Path, scratch: Path, name: str, rounds: int) -> list[Path]:
    copies = [scratch / f"{name}-{number}" for number in range(rounds + 1)]
    for copy in copies:
        shutil.copytree(source, copy)
    os.sync()
    return copies
