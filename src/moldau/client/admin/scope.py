"""A topic, or some of its partitions, as commands and plans name them."""

from typing import NamedTuple

HIGHEST_PARTITION = 2**31 - 1
MOST_DIGITS = 19  # Python refuses to read thousands of them


class Scope(NamedTuple):
    """A topic, and which of its partitions; None for all."""

    topic: str
    partitions: tuple[int, ...] | None = None


def is_number(text: str, largest: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS and int(text) <= largest
