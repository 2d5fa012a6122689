"""Full log directories in the broker's log: when it begins, while it lasts, and when it is over."""

import errno
from pathlib import Path

import pytest

from moldau.replication.disk_full import ENOUGH_BYTES, QUIET_S, REMIND_S, FullDirectories, describe

FULL = OSError(errno.ENOSPC, "164512 of 900072 bytes were written")
DATA = Path("/data")


class Disk:
    def __init__(self) -> None:
        self.now = 100.0
        self.free = 0
        self.full = FullDirectories(lambda: self.now, lambda _: self.free)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_one_line_when_it_begins_few_while_it_lasts_one_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    for _ in range(400):
        disk.full.refused(DATA, "orders-3", FULL)
        disk.full.look()
        disk.now += 0.125
    (begun,) = lines(caplog)
    assert begun.startswith("Disk full: orders-3 is read-only until space is freed (/data, ")
    assert "retention" in begun
    disk.now += REMIND_S - 50
    disk.full.refused(DATA, "orders-4", FULL)
    (reminder,) = lines(caplog)
    assert reminder.startswith("/data is still full after 60 s (0 bytes left): 401 writes to orders-3, orders-4 were")
    disk.free = ENOUGH_BYTES
    disk.full.look()
    assert not lines(caplog), "a write was refused a moment ago"
    disk.now += QUIET_S
    disk.full.look()
    (over,) = lines(caplog)
    assert over.startswith("/data accepts writes again (1,048,576 bytes left). It refused 401 writes to orders-3, ord")
    disk.full.look()
    assert not lines(caplog)
    disk.full.refused(DATA, "orders-3", FULL)
    assert "Disk full: orders-3" in lines(caplog)[0]


def test_a_disk_that_nobody_writes_to_stays_full_until_there_is_space(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.full.refused(DATA, "orders-3", FULL)
    caplog.clear()
    for _ in range(int(2 * REMIND_S) + 1):
        disk.full.look()
        disk.now += 1
    assert len(lines(caplog)) == 2


def test_each_directory_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.full.refused(DATA, "a-0", FULL)
    disk.full.refused(Path("/more"), "b-0", FULL)
    assert [line.split()[2] for line in lines(caplog)] == ["a-0", "b-0"]


@pytest.mark.parametrize(
    ("number", "cause", "remedy"),
    [
        (errno.ENOSPC, "Disk full", "Delete topics"),
        (errno.EDQUOT, "Disk quota exceeded", "Delete topics"),
        (errno.EMFILE, "Too many open files", "ulimit -n"),
    ],
)
def test_what_a_client_is_told(tmp_path: Path, number: int, cause: str, remedy: str) -> None:
    told = describe("orders-3", tmp_path, OSError(number, "as the system says"))
    assert told.startswith(f"{cause}: orders-3 is read-only until ")
    assert remedy in told
