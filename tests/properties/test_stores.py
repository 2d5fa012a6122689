"""The embedded store and ZooKeeper do the same with every change: the one is the oracle of the other."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.base.tree import ANY_VERSION, Check, Create, Delete, Op, Set
from moldau.store.port import Conflict, Done, Node, Store
from moldau.store.sqlite import SqliteStore
from moldau.store.zookeeper import ZooKeeperStore
from moldau.testing import ZooKeeper

PATIENCE_S = 60
PATHS = ["/a", "/b", "/a/c", "/a/d", "/a/c/e", "/b/c"]
NUMBERS = count()

paths = st.sampled_from(PATHS)
versions = st.sampled_from([ANY_VERSION, ANY_VERSION, 0, 1, 2])
data = st.sampled_from([b"", b"x", bytes(range(256))])
ops = st.one_of(
    st.builds(Create, paths, data, st.sampled_from([False, False, False, True])),
    st.builds(Set, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
histories = st.lists(st.lists(ops, min_size=1, max_size=5), min_size=1, max_size=8)


class Pair:
    """Both stores, with a loop that lasts."""

    def __init__(self, directory: Path, zookeeper: ZooKeeper) -> None:
        self.runner = asyncio.Runner()
        self.sqlite = self.runner.run(SqliteStore.open(directory / "store.db"))
        self.ensemble = self.runner.run(ZooKeeperStore.open(f"{zookeeper.connect}/test_stores"))

    def close(self) -> None:
        self.runner.run(self.sqlite.close())
        self.runner.run(self.ensemble.close())
        self.runner.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> Iterator[Pair]:
    stores = Pair(tmp_path_factory.mktemp("stores"), zookeeper)
    yield stores
    stores.close()


def below(root: str, op: Op) -> Op:
    return replace(op, path=root + op.path)


async def watches(store: Store, root: str) -> dict[tuple[str, str], asyncio.Future[None]]:
    # Only where there is a node: on others ZooKeeper also tells when the node itself comes to be.
    there = await store.subtree(root)
    found = {("data", path): await store.watch_data(root + path) for path in PATHS}
    return found | {
        ("children", path): await store.watch_children(root + path) for path in PATHS if root + path in there
    }


async def change(
    store: Store, root: str, history: list[list[Op]]
) -> tuple[list[list[Done] | Conflict], dict[str, Node]]:
    outcomes = [await store.multi([below(root, op) for op in multi]) for multi in history]
    return outcomes, await store.subtree(root)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories)
def test_changes_have_the_same_outcome(pair: Pair, history: list[list[Op]]) -> None:
    async def both() -> None:
        root = f"/{next(NUMBERS)}"
        for store in (pair.sqlite, pair.ensemble):
            await store.multi([Create(root)])
        assert await change(pair.ensemble, root, history) == await change(pair.sqlite, root, history)

    pair.runner.run(both())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories)
def test_a_watch_that_fires_on_one_fires_on_the_other(pair: Pair, history: list[list[Op]]) -> None:
    async def both() -> None:
        root = f"/{next(NUMBERS)}"
        for store in (pair.sqlite, pair.ensemble):
            await store.multi([Create(root)])
        for multi in history:
            here, there = [await watches(store, root) for store in (pair.sqlite, pair.ensemble)]
            assert here.keys() == there.keys()
            for store in (pair.sqlite, pair.ensemble):
                await store.multi([below(root, op) for op in multi])
            await asyncio.sleep(0)  # SQLite's fire in the turn after the change
            expected = [there[key] for key, watch in here.items() if watch.done()]
            if expected:
                await asyncio.wait_for(asyncio.gather(*expected), PATIENCE_S)
            for watch in (*here.values(), *there.values()):
                watch.cancel()

    pair.runner.run(both())
