"""A ZooKeeper ensemble in memory, on a loop with a virtual clock: sessions disconnect, expire, and read stale data.

Every session has its own server, which may lag behind the newest state. `sync` and writes bring it up to date; a new
session may start with a server that is further behind than the old one, as with kazoo.
"""

import asyncio
import selectors
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from moldau.base.tree import ANY_VERSION, Check, Create, Delete, Op, Set, name_of, parent_of
from moldau.store.port import Conflict, Done, Node, Reason, StoreUnavailable

T = TypeVar("T")

Tree = dict[str, tuple[bytes, int, int, int]]  # data, version, owner session or 0, change that created it
NEWEST_LAG_S = 1.0  # after this time a server is up to date


class VirtualLoop(asyncio.SelectorEventLoop):
    """Never waits: the clock jumps to the next timer instead."""

    def __init__(self) -> None:
        self._now = 0.0
        selector = selectors.DefaultSelector()
        select = selector.select
        super().__init__(selector)

        def jump(timeout: float | None = None) -> Any:
            if timeout is None:
                raise RuntimeError("deadlock: no timer and nothing ready")
            self._now += timeout
            return select(0)

        selector.select = jump  # type: ignore[method-assign]

    def time(self) -> float:
        return self._now


class Ensemble:
    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.history: list[Tree] = [{"/": (b"", 0, 0, 0)}]  # by the number of the last change
        self.sessions: list[VirtualStore] = []
        self._last_session = 0

    def new_session(self) -> int:
        self._last_session += 1
        return self._last_session

    def change(self, ops: Sequence[Op], session: int) -> list[Done] | Conflict:
        tree, number = dict(self.history[-1]), len(self.history)
        done = []
        for index, op in enumerate(ops):
            reason = _apply(tree, op, session, number)
            if reason is not None:
                return Conflict(reason, index, op)
            done.append(Done(op.path, tree[op.path][1] if isinstance(op, Create | Set) else -1))
        self._become(tree)
        return done

    def end_session(self, session: int) -> None:
        self._become({path: node for path, node in self.history[-1].items() if node[2] != session})

    def _become(self, tree: Tree) -> None:
        self.history.append(tree)
        loop = asyncio.get_running_loop()
        number = len(self.history) - 1
        for each in self.sessions:
            loop.call_later(self.dice.random() ** 4 * NEWEST_LAG_S, each.learn, number)


def _apply(tree: Tree, op: Op, session: int, number: int) -> Reason | None:
    node = tree.get(op.path)
    if isinstance(op, Create):
        if parent_of(op.path) not in tree:
            return Reason.NO_NODE
        if node is not None:
            return Reason.NODE_EXISTS
        tree[op.path] = (op.data, 0, session if op.ephemeral else 0, number)
        return None
    if node is None:
        return Reason.NO_NODE
    if op.version not in (ANY_VERSION, node[1]):
        return Reason.BAD_VERSION
    if isinstance(op, Set):
        tree[op.path] = (op.data, node[1] + 1, node[2], node[3])
    elif isinstance(op, Delete):
        if any(path != op.path and parent_of(path) == op.path for path in tree):
            return Reason.NOT_EMPTY
        del tree[op.path]
    else:
        assert isinstance(op, Check)
    return None


class VirtualStore:
    """A client's session; see `store.port.Store`."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._dice = ensemble.dice
        self.session = ensemble.new_session()
        self.connected = True
        self._known = len(ensemble.history) - 1
        self._callbacks: list[Callable[[], None]] = []
        self._watches: list[tuple[str, str, object, asyncio.Future[None]]] = []
        ensemble.sessions.append(self)

    # ── faults ──

    def cut(self) -> None:
        self.connected = False
        self._fire_all()

    def heal(self, *, expired: bool) -> None:
        if expired:
            self._ensemble.end_session(self.session)
            self.session = self._ensemble.new_session()
            newest = len(self._ensemble.history) - 1
            self._known = max(newest - self._dice.randrange(6), 0)
            asyncio.get_running_loop().call_later(NEWEST_LAG_S, self.learn, newest)
        self.connected = True
        if expired:
            for callback in self._callbacks:
                callback()

    def abandon(self, after_s: float) -> None:
        """The process ends; the session expires later."""
        self.connected = False
        self._ensemble.sessions.remove(self)
        asyncio.get_running_loop().call_later(after_s, self._ensemble.end_session, self.session)

    def learn(self, number: int) -> None:
        self._known = max(self._known, number)
        for kind, path, seen, watch in list(self._watches):
            if self._look(kind, path) != seen and not watch.done():
                watch.set_result(None)

    # ── the port ──

    def on_session(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    async def sync(self) -> None:
        await self._ask(lambda: self.learn(len(self._ensemble.history) - 1))

    async def get(self, path: str) -> Node | None:
        found = await self._ask(lambda: self._tree.get(path))
        return None if found is None else Node(found[0], found[1])

    async def exists(self, path: str) -> bool:
        return await self.get(path) is not None

    async def children(self, path: str) -> list[str]:
        return await self._ask(lambda: sorted(self._children(path)))

    async def subtree(self, path: str) -> dict[str, Node]:
        found: dict[str, Node] = {}
        level = [path]
        while level:  # not a snapshot, as with ZooKeeper
            tree = await self._ask(lambda: self._tree)
            found |= {each: Node(*tree[each][:2]) for each in level if each in tree}
            level = [each for each in tree if each != "/" and parent_of(each) in level]
        return found

    async def multi(self, ops: Sequence[Op]) -> list[Done] | Conflict:
        def change() -> list[Done] | Conflict:
            result = self._ensemble.change(ops, self.session)
            self.learn(len(self._ensemble.history) - 1)
            return result

        return await self._ask(change)

    async def watch_data(self, path: str) -> asyncio.Future[None]:
        return await self._ask(lambda: self._watch("data", path))

    async def watch_children(self, path: str) -> asyncio.Future[None]:
        return await self._ask(lambda: self._watch("children", path))

    async def close(self) -> None:
        self.connected = False
        self._ensemble.end_session(self.session)

    # ──

    async def _ask(self, work: Callable[[], T]) -> T:
        """Send a request. If it is lost nothing is done; if the response is lost the outcome is unknown."""
        for step in (work, None):
            session = self.session
            if not self.connected:
                raise StoreUnavailable("out of reach")
            await asyncio.sleep(self._dice.random() * 0.004)
            if not self.connected or session != self.session:
                raise StoreUnavailable("connection lost")
            if step is not None:
                answer = step()
        return answer

    @property
    def _tree(self) -> Tree:
        return self._ensemble.history[self._known]

    def _children(self, path: str) -> set[str]:
        return {name_of(each) for each in self._tree if each != "/" and parent_of(each) == path}

    def _look(self, kind: str, path: str) -> object:
        return self._tree.get(path) if kind == "data" else self._children(path)

    def _watch(self, kind: str, path: str) -> asyncio.Future[None]:
        watch: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        row = (kind, path, self._look(kind, path), watch)
        self._watches.append(row)
        watch.add_done_callback(lambda _: self._watches.remove(row))
        return watch

    def _fire_all(self) -> None:
        for _, _, _, watch in list(self._watches):
            if not watch.done():
                watch.set_result(None)
