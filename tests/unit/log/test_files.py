"""The pool of open files: its bound, its second chance, and its use from several threads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from moldau.log.files import LogFile, OpenFiles


class Holder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.touched = False
        self.file: LogFile | None = None

    def open_file(self) -> LogFile:
        self.file = LogFile(str(self.path))
        return self.file

    def release_file(self) -> None:
        self.file = None


def holders(tmp_path: Path, count: int) -> list[Holder]:
    path = tmp_path / "file"
    path.touch()
    return [Holder(path) for _ in range(count)]


def test_the_oldest_that_was_not_used_since_is_closed(tmp_path: Path) -> None:
    pool = OpenFiles(limit=3)
    first, second, third, fourth = holders(tmp_path, 4)
    for holder in (first, second, third):
        pool.open(holder)
    first.touched = True
    pool.open(fourth)
    assert [holder.file is not None for holder in (first, second, third, fourth)] == [True, False, True, True]
    pool.forget(third)
    pool.open(second)
    assert [holder.file is not None for holder in (first, second, third, fourth)] == [True, True, False, True]


def test_a_file_in_use_outlives_its_eviction(tmp_path: Path) -> None:
    pool = OpenFiles(limit=1)
    first, second = holders(tmp_path, 2)
    file = pool.open(first)
    pool.open(second)
    assert first.file is None
    assert file.size == 0


def test_threads_share_a_pool(tmp_path: Path) -> None:
    pool = OpenFiles(limit=8)

    def use(holder: Holder) -> None:
        for number in range(300):
            pool.open(holder)
            holder.touched = number % 2 == 0
            if number % 3 == 0:
                pool.forget(holder)

    everyone = holders(tmp_path, 32)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, everyone))
    assert len(pool) <= 8 + 8  # each thread may be between looking and adding
