"""The embedded store's own promises: its file survives crashes, and what it cannot do it says in one clear way."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.base.tree import Create, Delete, Op, Set
from moldau.store.port import Node, StoreDamaged, StoreError, StoreFull, StoreUnavailable
from moldau.store.sqlite import SCHEMA_VERSION, SqliteStore

PROGRAM = """
import asyncio, os, resource, signal, sys
from pathlib import Path
from moldau.base.tree import Create, Delete, Op, Set
from moldau.store.port import StoreUnavailable
from moldau.store.sqlite import SqliteStore

async def main(path):
    store = await SqliteStore.open(path)
{body}

asyncio.run(main(Path(sys.argv[1])))
"""


def run_program(path: Path, body: str) -> subprocess.CompletedProcess[str]:
    code = PROGRAM.format(body="\n".join("    " + line for line in body.strip().splitlines()))
    return subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)


def read_all(path: Path) -> dict[str, Node]:
    async def session() -> dict[str, Node]:
        store = await SqliteStore.open(path)
        nodes = await store.subtree("/")
        await store.close()
        return nodes

    return asyncio.run(session())


def open_error(path: Path) -> StoreError:
    with pytest.raises(StoreError) as caught:
        asyncio.run(SqliteStore.open(path))
    return caught.value


def test_answered_changes_survive_a_kill_and_its_ephemeral_nodes_do_not(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    body = """
await store.multi([Create("/a", b"1"), Create("/e", ephemeral=True)])
await store.multi([Set("/a", b"2")])
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run_program(path, body).returncode == -signal.SIGKILL
    assert read_all(path) == {"/": Node(b"", 0), "/a": Node(b"2", 1)}


def test_a_full_disk_is_unavailable_changes_nothing_and_passes(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    body = """
await store.multi([Create("/a", b"old")])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    await store.multi([Set("/a", b"new"), Create("/big", bytes(1_000_000))])
except StoreUnavailable as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert (await store.get("/a")).data == b"old"
await store.multi([Create("/b")])
await store.close()
"""
    result = run_program(path, body)
    assert result.returncode == 0, result.stderr
    assert str(path) in result.stdout
    assert sorted(read_all(path)) == ["/", "/a", "/b"]


def test_a_file_that_another_process_has_open_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def session() -> None:
        store = await SqliteStore.open(path)
        with pytest.raises(StoreUnavailable, match="locked"):
            await SqliteStore.open(path)
        assert await store.multi([Create("/a")])
        await store.close()

    asyncio.run(session())


def test_a_missing_directory_is_unavailable(tmp_path: Path) -> None:
    assert isinstance(open_error(tmp_path / "nowhere" / "store.db"), StoreUnavailable)


def test_a_file_of_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    read_all(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    error = open_error(path)
    assert isinstance(error, StoreDamaged)
    assert "newer Moldau" in str(error)


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to be one" * 100, b"SQLite format 3\0" * 64]
)
def test_a_file_that_is_no_database_is_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    error = open_error(path)
    assert isinstance(error, StoreDamaged)
    assert str(path) in str(error)
    assert path.read_bytes() == content


def test_a_foreign_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE node (x)")
    connection.close()
    assert "not one of Moldau's" in str(open_error(path))


def test_a_page_gone_bad_is_damaged_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def fill() -> None:
        store = await SqliteStore.open(path)
        await store.multi([Create(f"/{i}", bytes(500)) for i in range(500)])
        await store.close()

    asyncio.run(fill())
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreDamaged):
        read_all(path)


def test_a_watch_fires_even_if_the_writer_stopped_waiting(tmp_path: Path) -> None:
    async def session() -> None:
        store = await SqliteStore.open(tmp_path / "store.db")
        watch = await store.watch_data("/a")
        writer = asyncio.create_task(store.multi([Create("/a")]))
        await asyncio.sleep(0)
        writer.cancel()
        await asyncio.wait_for(watch, 5)
        assert await store.exists("/a")
        await store.close()

    asyncio.run(session())


def test_no_file_is_left_beside_a_closed_store(tmp_path: Path) -> None:
    read_all(tmp_path / "store.db")
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]


def test_setting_much_keeps_the_write_ahead_log_bounded(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def session() -> int:
        store = await SqliteStore.open(path)
        await store.multi([Create("/a")])
        for _ in range(30):
            await store.multi([Set("/a", bytes(300_000))])
        size = path.with_name("store.db-wal").stat().st_size
        await store.close()
        return size

    assert asyncio.run(session()) < 6_000_000


class PagesInReserve:
    """A reserve that lets the database grow by a few pages each time."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.filled = 0
        self.connection: sqlite3.Connection | None = None

    def fill(self) -> None:
        self.filled += 1

    def release(self) -> bool:
        if not self.parts or self.connection is None:
            return False
        self.parts -= 1
        (pages,) = self.connection.execute("PRAGMA max_page_count").fetchone()
        self.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        return True


def full_store(path: Path, parts: int, *ops: Op) -> tuple[object, PagesInReserve]:
    async def session() -> object:
        store = await SqliteStore.open(path, reserve)
        await store.multi([Create("/a"), Create("/b")])
        reserve.connection = store._connection
        reserve.connection.execute("PRAGMA max_page_count = 1")  # SQLite takes the present size then
        try:
            return await store.multi(ops)
        except StoreFull as problem:
            assert await store.get("/new") is None
            return problem
        finally:
            await store.close()

    reserve = PagesInReserve(parts)
    return asyncio.run(session()), reserve


@pytest.mark.parametrize("ops", [[Set("/a", bytes(20_000))], [Create("/new", bytes(20_000)), Delete("/b")]])
def test_a_small_change_on_a_full_disk_uses_the_reserve(tmp_path: Path, ops: list[Op]) -> None:
    result, reserve = full_store(tmp_path / "store.db", 8, *ops)
    assert isinstance(result, list)
    assert reserve.parts < 8
    assert reserve.filled == 4, "when it was opened, and after each of two changes"


def test_a_full_disk_with_an_empty_reserve_says_what_to_do(tmp_path: Path) -> None:
    result, reserve = full_store(tmp_path / "store.db", 2, Create("/new", bytes(20_000)))
    assert isinstance(result, StoreFull)
    assert str(result).startswith("Disk full: ")
    assert "Delete topics or lower retention.bytes" in str(result)
    assert reserve.parts == 0


def test_a_change_that_adds_much_leaves_the_reserve_alone(tmp_path: Path) -> None:
    ops = [Create("/new", bytes(20_000)), Create("/new/1"), Create("/new/2")]
    result, reserve = full_store(tmp_path / "store.db", 8, *ops)
    assert isinstance(result, StoreFull)
    assert reserve.parts == 8


def test_the_owner_alone_reads_the_file(tmp_path: Path) -> None:
    def modes() -> dict[str, int]:
        return {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}

    async def session(path: Path) -> None:
        store = await SqliteStore.open(path)
        await store.multi([Create("/a", b"a credential")])
        assert modes() == {"store": 0o600, "store-wal": 0o600}
        await store.close()

    path = tmp_path / "store"
    asyncio.run(session(path))
    path.chmod(0o644)  # as an earlier release left it
    assert read_all(path)
    assert modes() == {"store": 0o600}
