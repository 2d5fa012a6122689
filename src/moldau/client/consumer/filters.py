"""`where`: which messages reach the body. A mapping compares header texts; a function decides for itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moldau.client.errors import DeserializationFailed, InvalidUse
from moldau.client.message import Message

AnyMessage = Message[Any, Any]


class Filter:
    """Chooses messages, and counts those that it passes over."""

    def __init__(self, where: Mapping[str, object] | Callable[[AnyMessage], bool] | None) -> None:
        self.active = where is not None
        self.passed_over = 0
        self._passes = _predicate(where)

    def keep(self, messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
        """Messages that pass.

        A message that the function cannot read passes: the body gets the same error, and decides.
        """
        if not self.active:
            return messages
        kept = []
        for message in messages:
            try:
                passes = self._passes(message)
            except DeserializationFailed:
                passes = True
            if passes:
                kept.append(message)
        self.passed_over += len(messages) - len(kept)
        return kept


def _predicate(where: Mapping[str, object] | Callable[[AnyMessage], bool] | None) -> Callable[[AnyMessage], bool]:
    if where is None:
        return lambda message: True
    if callable(where):
        return where
    if not isinstance(where, Mapping) or not all(isinstance(name, str) for name in where):
        raise InvalidUse(f"where must map header names to values, or be a function of a message, not {where!r}")
    wanted = {name: _texts(value) for name, value in where.items()}

    def passes(message: AnyMessage) -> bool:
        props = message.props
        return all(props.get(name) in texts for name, texts in wanted.items())

    return passes


def _texts(value: object) -> frozenset[str]:
    """One value, or a set of values, as header texts."""
    if isinstance(value, str):
        return frozenset((value,))
    if isinstance(value, set | frozenset | list | tuple) and all(isinstance(each, str) for each in value):
        return frozenset(value)
    raise InvalidUse(f"where takes texts and sets of texts, not {value!r}")
