"""An answer that a handler gives later, without a task of its own: a member that joins may wait for minutes."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any


class Promise:
    """Resolved once; what comes after the first answer is dropped. Either `then` or `await` it."""

    __slots__ = ("_then", "answer", "done")

    def __init__(self) -> None:
        self.done = False
        self.answer: Any = None
        self._then: Callable[[Any], None] | None = None

    def resolve(self, answer: Any) -> None:
        if not self.done:
            self.done = True
            self.answer = answer
            if self._then is not None:
                self._then(answer)

    def then(self, use: Callable[[Any], None]) -> None:
        """Has the answer used when it is there, which may be at once."""
        if self.done:
            use(self.answer)
        else:
            self._then = use

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done:
            arrived: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._then = lambda answer: None if arrived.done() else arrived.set_result(answer)
            yield from arrived
        return self.answer
