"""Source: builder of Python functions for the code generators `reader` and `writer`. Knows no messages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any


class Source:
    """Lines with indentation, fresh names, and the globals of the function."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.lines: list[str] = []
        self.known: dict[str, Any] = {}
        self._depth = 1
        self._names = 0

    def add(self, line: str) -> None:
        self.lines.append("    " * self._depth + line)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.add(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, hint: str) -> str:
        """An unused name; the hint keeps generated code readable in a traceback."""
        self._names += 1
        return f"{hint}_{self._names}"

    def let(self, hint: str, value: Any) -> str:
        """Add `value` to the globals of the function and return its name."""
        name = self.fresh(hint)
        self.known[name] = value
        return name

    def struct(self, letters: str, method: str) -> str:
        """The name of a bound method (`pack` or `unpack_from`) of a compiled big-endian layout."""
        name = f"{method}_{letters.replace('?', 'o')}"
        self.known[name] = getattr(Struct(">" + letters), method)
        return name

    def function(self, signature: str) -> Callable[..., Any]:
        """Compile the lines as the body of `def {signature}`."""
        code = compile(f"def {signature}:\n" + "\n".join(self.lines), f"<{self.title}>", "exec")
        exec(code, self.known)
        found: Callable[..., Any] = self.known[signature.partition("(")[0]]
        return found
