"""`moldau log check`: what it says of a damaged directory is what the next start does, and it changes nothing."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from moldau.log.directory import LogDirectory
from moldau.log.log import Log
from moldau.log.markers import Marker, encode_marker
from moldau.log.settings import LogConfig
from moldau.tools.log.dump import app
from moldau.tools.log.verify import verify
from moldau.wire.batch import TRANSACTIONAL
from support.log.histories import History
from support.log.logs import NOW, append, batch, flush, open_log

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)


def check(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


def written(path: Path, *, clean: bool = True, flushed: bool = True) -> Log:
    directory = LogDirectory.open(path)
    log = open_log(path, CONFIG)
    for number in range(10):
        append(log, batch(2, timestamp=NOW + number, producer_id=7, epoch=0, sequence=2 * number))
        append(log, batch(1, timestamp=NOW, producer_id=8, epoch=0, sequence=number, attributes=TRANSACTIONAL))
        append(log, memoryview(encode_marker(8, 0, Marker(number % 2 == 0, 0), NOW)))
    log.close(clean=flushed)
    directory.write_checkpoints({("topic", 0): log.durability.checkpoint}, {("topic", 0): log.end_offset}, {})
    directory.close(clean=clean)
    return log


def content(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def last(path: Path, suffix: str, index: int = -1) -> Path:
    return sorted((path / "topic-0").glob(f"*{suffix}"))[index]


def test_nothing_is_wrong(tmp_path: Path) -> None:
    written(tmp_path)
    before = content(tmp_path)
    result = check(tmp_path)
    assert result.exit_code == 0, result.output
    assert re.search(r"1 log, [0-9]+ segments, .* nothing wrong", result.output)
    assert content(tmp_path) == before


def test_directories_without_logs_are_refused(tmp_path: Path) -> None:
    written(tmp_path)
    partition = check(tmp_path / "topic-0")
    assert (partition.exit_code, partition.stdout) == (2, "")
    assert f"directory of one partition; name its log directory: {tmp_path}" in partition.stderr
    (tmp_path / "notes").mkdir()
    other = check(tmp_path / "notes")
    assert (other.exit_code, other.stdout) == (2, "")
    assert "is no log directory" in other.stderr


def test_after_a_kill_it_is_a_note(tmp_path: Path) -> None:
    written(tmp_path, clean=False, flushed=False)
    result = check(tmp_path)
    assert result.exit_code == 0, result.output
    assert "note:" in result.output
    assert "checked from their recovery points" in result.output


@pytest.mark.parametrize("cut", [1, 30, 61, 70])
def test_a_torn_end_is_told_as_recovery_cuts_it(tmp_path: Path, cut: int) -> None:
    written(tmp_path, clean=False, flushed=False)
    torn = last(tmp_path, ".log")
    torn.write_bytes(torn.read_bytes()[:-cut])
    result = check(tmp_path)
    assert result.exit_code == 1
    told = re.search(r"the log is cut at offset ([0-9]+)", result.output)
    assert told
    assert open_log(tmp_path, CONFIG).end_offset == int(told[1])


def remove(path: Path) -> None:
    path.unlink()


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def drop_entry(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-12])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data)


def mistake(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[9] ^= 1  # the first entry's producer
    path.write_bytes(data)


def fill(path: Path) -> None:
    path.write_bytes(b"nonsense")


DAMAGE: dict[str, tuple[Callable[[Path], None], Callable[[Path], Path], str]] = {
    "index missing": (remove, lambda path: last(path, ".index"), "made anew"),
    "index short": (shorten, lambda path: last(path, ".index", 0), "made anew"),
    "time index missing": (remove, lambda path: last(path, ".timeindex", 0), "made anew"),
    "time index short": (shorten, lambda path: last(path, ".timeindex", 0), "made anew"),
    "time index stale": (drop_entry, lambda path: last(path, ".timeindex", 0), "older than it is"),
    "aborts forgotten": (remove, lambda path: last(path, ".txnindex", 0), "consumers with read_committed"),
    "aborts mistaken": (mistake, lambda path: last(path, ".txnindex", 0), "consumers with read_committed"),
    "snapshot": (flip, lambda path: last(path, ".snapshot"), "an older one is used"),
    "epochs": (fill, lambda path: path / "topic-0/leader-epoch-checkpoint", "read from the batches"),
    "topic id": (fill, lambda path: path / "topic-0/partition.metadata", "from the broker's metadata"),
    "recovery points": (fill, lambda path: path / "recovery-point-offset-checkpoint", "every log is checked"),
    "a finished segment": (flip, lambda path: last(path, ".log", 0), "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named_with_what_becomes_of_it(tmp_path: Path, what: str) -> None:
    written(tmp_path)
    damage, choose, words = DAMAGE[what]
    victim = choose(tmp_path)
    damage(victim)
    before = content(tmp_path)
    result = check(tmp_path, "-o", "json")
    assert result.exit_code == 1, result.output
    found = [json.loads(line) for line in result.output.splitlines()]
    assert any(row["wrong"] and words in row["remedy"] for row in found), found
    assert str(victim) in {row["path"] for row in found}
    assert content(tmp_path) == before


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("index", [0, -1], ids=["the first segment", "the last"])
def test_a_flipped_byte_anywhere_is_told_as_the_next_start_takes_it(tmp_path: Path, clean: bool, index: int) -> None:
    directory = LogDirectory.open(tmp_path)
    log = open_log(tmp_path, CONFIG)
    for number in range(17):
        append(log, batch(2, timestamp=NOW + number, producer_id=7, epoch=0, sequence=2 * number))
        if number == 14:
            flush(log)
    log.close(clean=clean)
    point = log.durability.checkpoint
    directory.write_checkpoints({("topic", 0): point}, {}, {})
    directory.close(clean=clean)
    before, victim = content(tmp_path), last(tmp_path, ".log", index)
    data = victim.read_bytes()
    for at in range(3, len(data), 13):
        victim.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        remedies = " ".join(found.remedy for found in verify([tmp_path]).findings)
        told = re.search(r"the log is cut at offset ([0-9]+)", remedies)
        again = open_log(tmp_path, CONFIG, clean=clean, recovery_point=point)
        unchecked = max(log.end_offset, again.end_offset)  # a base offset is in no checksum, and gaps are allowed
        assert again.end_offset == (int(told[1]) if told else unchecked), at
        again.close(clean=False)
        restore(tmp_path, before)


def restore(path: Path, files: dict[str, bytes]) -> None:
    for name in content(path).keys() - files.keys():
        (path / name).unlink()
    for name, data in files.items():
        (path / name).write_bytes(data)


def test_leftovers_are_notes(tmp_path: Path) -> None:
    written(tmp_path)
    for name in ("topic-0/00000000000000000000.log.deleted", "topic-0/00000000000000000000.index.cleaned"):
        (tmp_path / name).touch()
    for name in ("a-0.0f-delete", "b-1.0f-future", "c-2.0f-stray"):
        (tmp_path / name).mkdir()
    result = check(tmp_path)
    assert result.exit_code == 0
    assert result.output.count("note:") == 5


def test_two_directories_with_one_partition(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path / name)
    result = check(tmp_path / "one", tmp_path / "two")
    assert result.exit_code == 1
    assert "the broker does not start" in result.output


def test_compaction_leaves_nothing_wrong(tmp_path: Path) -> None:
    """It takes the records of aborted transactions before their markers, of which an index still tells."""
    history = History(tmp_path)
    for number in range(12):
        history.write([(b"k%d" % (number % 3), b"x" * 50)], producer=1)
        history.write([(b"k1", b"aborted")], producer=7, transactional=True)
        history.end(7, commit=number % 4 == 0)
    history.clean()
    assert list((tmp_path / "topic-0").glob("*.txnindex"))
    directory = LogDirectory.open(tmp_path)
    history.log.close()
    directory.write_checkpoints({("topic", 0): history.log.end_offset}, {}, {})
    directory.close(clean=True)
    result = check(tmp_path)
    assert result.exit_code == 0, result.output


def test_of_a_partition_that_was_moved_the_copy_stays(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path / name)
    (tmp_path / "two/topic-0/moved").write_text("0")
    result = check(tmp_path / "one", tmp_path / "two")
    assert result.exit_code == 0, result.output
    assert "moved to another directory" in result.output


def test_what_cannot_be_looked_at(tmp_path: Path) -> None:
    assert check(tmp_path / "nowhere").exit_code == 2


def test_replicas_of_several_brokers_are_no_contradiction(tmp_path: Path) -> None:
    for node_id in (1, 2):
        written(tmp_path / str(node_id))
        (tmp_path / str(node_id) / "meta.properties").write_text(f"version=1\nnode.id={node_id}\n")
    result = check(tmp_path / "1", tmp_path / "2")
    assert result.exit_code == 0, result.output
    assert "meta.properties" in check(tmp_path).output, "it is no directory of a broker"
