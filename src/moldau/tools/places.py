"""Partitions as people write them: `orders`, or `orders:0,1` for some of its partitions. Asks no broker."""

from typing import NamedTuple

from moldau.tools.common.failure import misused

HIGHEST_PARTITION = 2**31 - 1
LONGEST_NUMBER = 20  # digits; Python refuses to read thousands of them


class Place(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Scope(NamedTuple):
    """A topic, and which of its partitions; None for all."""

    topic: str
    partitions: tuple[int, ...] | None = None


def read_scope(text: str, option: str) -> Scope:
    topic, colon, listed = text.partition(":")
    numbers = listed.split(",")
    if not topic or (colon and not all(is_number(number, HIGHEST_PARTITION) for number in numbers)):
        raise misused(f"{option} {text!r} is not a topic", remedy="Give NAME, or NAME:0,1 for some of its partitions")
    return Scope(topic, tuple(sorted({int(number) for number in numbers})) if colon else None)


def is_number(text: str, largest: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < LONGEST_NUMBER and int(text) <= largest


def show_places(places: list[Place] | tuple[Place, ...]) -> str:
    """Several partitions in the form that `read_scope` reads, topic by topic."""
    topics: dict[str, list[str]] = {}
    for place in sorted(places):
        topics.setdefault(place.topic, []).append(str(place.partition))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items())
