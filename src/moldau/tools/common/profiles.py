"""Client properties from files: `-X @FILE`, and `--profile NAME` for files that only their owner can read.

Passwords belong there: an argument is seen by everyone who can list processes.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from moldau.client.errors import InvalidUse
from moldau.client.settings import read_profile, read_property_file
from moldau.tools.common.failure import misused

FILE_MARK = "@"

Source = TypeVar("Source")


def expand(properties: Iterable[str]) -> list[str]:
    """KEY=VALUE texts, with `@FILE` replaced by the properties of the file."""
    return [
        pair
        for text in properties
        for pair in ([text] if text[:1] != FILE_MARK else _read(read_property_file, Path(text[1:])))
    ]


def profile(name: str) -> list[str]:
    """The properties of a profile, as KEY=VALUE texts."""
    return _read(read_profile, name)


def _read(reader: Callable[[Source], dict[str, object]], source: Source) -> list[str]:
    try:
        return [f"{name}={value}" for name, value in reader(source).items()]
    except InvalidUse as problem:
        raise misused(str(problem)) from None
