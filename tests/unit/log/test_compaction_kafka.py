"""Apache Kafka as the oracle of compaction: its cleaner keeps what ours keeps, and its dump tool reads our files."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.jars import Jars
from moldau.wire.batch import BatchHeader
from support.kafka import jvm
from support.log.histories import COMPACTED, History, check
from support.log.logs import headers_on_disk, segment_files

pytestmark = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing())
PROGRAM = Path(__file__).parents[3] / "benchmarks" / "Clean.java"
SETTINGS = {
    "internal.segment.bytes": COMPACTED.segment_bytes,
    "index.interval.bytes": COMPACTED.index_interval_bytes,
    "delete.retention.ms": COMPACTED.delete_retention_ms,
}


def written(directory: Path) -> History:
    """Keys, tombstones, codecs, producers, and transactions of every fate, over many segments."""
    history = History(directory)
    for number in range(60):
        pairs = [
            (b"k%d" % ((number * 3 + place) % 11), None if (number + place) % 4 == 0 else b"v%d" % number * 5)
            for place in range(1 + number % 4)
        ]
        history.write(pairs, codec=number % 5, producer=number % 4 if number % 2 else None)
        history.write([(b"t%d" % (number % 5), b"x" * 20)], producer=10 + number % 3, transactional=True)
        if number % 4 == 3:
            history.end(10 + number % 3, commit=number % 8 == 3, bump=number % 2)
        history.now += 20
    for producer in (10, 11, 12):
        history.end(producer, commit=True)
    return history


def clean_by_kafka(directories: list[Path], now: int) -> list[dict[str, float]]:
    jars = jvm.find()
    assert isinstance(jars, Jars)
    if not jars.compiles:
        pytest.skip(
            "needs a JDK, which runs a source file as it is; on Debian: apt-get install openjdk-17-jdk-headless"
        )
    settings = ",".join(f"{name}={value}" for name, value in SETTINGS.items())
    paths = [str(each / "topic-0") for each in directories]
    done = subprocess.run(
        jars.command(str(PROGRAM), str(now), settings, *paths), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def essence(header: BatchHeader) -> BatchHeader:
    """Without what may differ: bytes after compression and, where a batch lost records, the first timestamp."""
    horizon = header.attributes & 0x40
    return header._replace(length=0, crc=0, base_timestamp=header.base_timestamp if horizon else 0)


def test_kafkas_cleaner_keeps_what_ours_keeps(tmp_path: Path) -> None:
    history = written(tmp_path / "ours")
    for round_ in range(3):
        history.work()  # rolls, so that both clean the same segments
        history.reopen(clean_stop=True)
        theirs = tmp_path / f"theirs-{round_}"
        shutil.copytree(history.directory, theirs)
        history.log.first_dirty_offset = 0
        tally = history.clean()
        assert tally is not None
        [stats] = clean_by_kafka([theirs], history.now)
        assert (stats["end"], stats["kept"]) == (tally.end, tally.records_kept)
        assert list(map(essence, headers_on_disk(theirs))) == list(map(essence, headers_on_disk(history.directory)))
        assert [path.name for path in segment_files(theirs)] == [path.name for path in segment_files(history.directory)]
        for path in segment_files(theirs):
            ours = history.directory / "topic-0" / path.with_suffix(".txnindex").name
            index = path.with_suffix(".txnindex")
            assert (ours.read_bytes() if ours.exists() else b"") == (index.read_bytes() if index.exists() else b"")
        history.now += 700
        history.write([(b"k1", b"new"), (b"other%d" % round_, b"")])


def test_kafkas_dump_tool_accepts_every_cleaned_file(tmp_path: Path) -> None:
    history = written(tmp_path)
    for _ in range(3):
        history.clean()
        history.now += 600
        history.write([(b"k1", b"new"), (b"k2", None)])
    check(history)
    history.log.close()
    logs = [path for path in segment_files(tmp_path) if path.stat().st_size]
    text = dump("--deep-iteration", "--files", ",".join(map(str, logs)))
    headers = headers_on_disk(tmp_path)
    assert text.count("isvalid: true") == len(headers)
    assert "isvalid: false" not in text
    assert text.count("| offset:") == sum(header.record_count for header in headers)
    assert "deleteHorizonMs: OptionalLong[" in text
    indexes = [path.with_suffix(suffix) for path in logs for suffix in (".index", ".timeindex")]
    text = dump("--files", ",".join(map(str, indexes)))
    assert "ismatch" not in text
    assert "out of order" not in text
    assert "not found" not in text
    text = dump("--index-sanity-check", "--files", ",".join(map(str, indexes)))
    assert text.count("passed sanity check") + text.count("is empty") == len(indexes), text


def dump(*arguments: str) -> str:
    done = jvm.run("org.apache.kafka.tools.DumpLogSegments", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
