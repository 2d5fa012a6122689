"""An answer that a handler gives later, without a task of its own: a member that joins may wait for minutes."""

import asyncio
from collections.abc import Callable, Generator, Sequence
from functools import partial
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


def joined(parts: Sequence[Any], make: Callable[[list[Any]], Any]) -> Any:
    """What `make` makes of the parts; if some of them are promised still, a Promise of it. `make` may promise too."""
    answers = list(parts)
    missing = [place for place, part in enumerate(parts) if isinstance(part, Promise)]
    if not missing:
        return make(answers)
    whole = Promise()
    left = len(missing)

    def arrived(place: int, answer: Any) -> None:
        nonlocal left
        answers[place] = answer
        left -= 1
        if not left:
            made = make(answers)
            if isinstance(made, Promise):
                made.then(whole.resolve)
            else:
                whole.resolve(made)

    for place in missing:
        parts[place].then(partial(arrived, place))
    return whole.answer if whole.done else whole


def after(part: Any, make: Callable[[Any], Any]) -> Any:
    """`make` of one answer, which may be promised."""
    return joined([part], lambda answers: make(answers[0])) if isinstance(part, Promise) else make(part)
