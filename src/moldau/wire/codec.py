"""Decode and encode messages of any version; in Python they always have their newest form.

A reader and a writer are compiled for each (message, version) on first use (`reader`, `writer`) from the message's
declaration (`declare`), and kept. Produce and Fetch also have hand-written codecs in `wire/hot`, which are tested
against these.
"""

from struct import error as struct_error
from typing import TypeVar

from moldau.wire.declare import Layout, OlderForm, layout_of
from moldau.wire.primitives import SHORT_READ, Buffer, MalformedMessage, Unencodable
from moldau.wire.reader import Reader, compile_reader
from moldau.wire.writer import Writer, compile_writer

__all__ = ["MalformedMessage", "Unencodable", "UnsupportedVersion", "decode", "encode"]

M = TypeVar("M")

_readers: dict[tuple[type, int], Reader] = {}
_writers: dict[tuple[type, int], Writer] = {}


class UnsupportedVersion(LookupError):
    """The message has no such version. Callers check `ApiMessages.lowest` and `.highest` first."""


def decode(cls: type[M], version: int, view: Buffer, position: int = 0, *, exact: bool = True) -> M:
    """Decode the message from `position` to the end of `view`.

    `exact=False` allows bytes behind it, as Kafka does: librdkafka sends three behind its Metadata requests.
    """
    read = _readers.get((cls, version)) or _reader(cls, version)
    try:
        found, position = read(view, position)
    except SHORT_READ:
        raise MalformedMessage(f"{cls.__name__} version {version} ends too early") from None
    except UnicodeDecodeError as bad:
        raise MalformedMessage(f"{cls.__name__} version {version}: a string is not UTF-8 ({bad.reason})") from None
    if exact and position != len(view):
        raise MalformedMessage(f"{cls.__name__} version {version} has {len(view) - position} bytes too many")
    message: M = found
    return message


def encode(message: object, version: int) -> bytes:
    """Encode the message in this version."""
    cls = type(message)
    write = _writers.get((cls, version)) or _writer(cls, version)
    try:
        return bytes(write(message))
    except (struct_error, AttributeError, TypeError, UnicodeEncodeError) as wrong:  # a value of another type or range
        raise Unencodable(f"{cls.__name__} version {version}: {wrong}") from wrong


def _reader(cls: type, version: int) -> Reader:
    layout = _layout(cls, version)
    older = _older_form(layout, version)
    if older is None:
        made = compile_reader(cls, version, layout.is_flexible(version))
    else:
        read_older = compile_reader(older, version, layout.is_flexible(version))

        def made(view: Buffer, position: int) -> tuple[object, int]:
            found, position = read_older(view, position)
            return found.to_newest(), position

    _readers[cls, version] = made
    return made


def _writer(cls: type, version: int) -> Writer:
    layout = _layout(cls, version)
    older = _older_form(layout, version)
    if older is None:
        made = compile_writer(cls, version, layout.is_flexible(version))
    else:
        write_older, from_newest = compile_writer(older, version, layout.is_flexible(version)), older.from_newest

        def made(newest: object) -> bytearray:
            return write_older(from_newest(newest))

    _writers[cls, version] = made
    return made


def _layout(cls: type, version: int) -> Layout:
    layout = layout_of(cls)
    lowest, highest = layout.versions
    if not lowest <= version <= highest:
        raise UnsupportedVersion(f"{cls.__name__} has versions {lowest} to {highest}, not {version}")
    return layout


def _older_form(layout: Layout, version: int) -> type[OlderForm] | None:
    return next((form for until, form in layout.older if version <= until), None)
