"""Compile the decoder of one message in one version to straight-line Python.

Lengths are not trusted: each is checked against the remaining bytes before anything is allocated, and the count of an
array also with the smallest size of its elements, so a false count of a billion costs nothing. Adjacent fixed-width
fields, and the length that follows them, are read with one `unpack_from`, which does not read past the end. `codec`
converts older forms to the newest and raises the errors that callers see.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import unpack_from as _unpack_from
from typing import Any
from uuid import UUID

from moldau.wire.declare import Array, Blob, Field, Fixed, Kind, Nested, Text, Uuid, fields_of
from moldau.wire.primitives import (
    MAX_STRING_BYTES,
    ZERO_UUID,
    Buffer,
    continue_uvarint,
    read_uvarint,
    refuse_length,
    skip_tags,
)
from moldau.wire.source import Source

Reader = Callable[[Buffer, int], tuple[Any, int]]  # (buffer, position) to the message and the position behind it

ZERO_UUID_BYTES = bytes(16)


def read_uuid(raw: bytes) -> UUID:
    return ZERO_UUID if raw == ZERO_UUID_BYTES else UUID(bytes=raw)


def compile_reader(cls: type, version: int, flexible: bool) -> Reader:
    return _ReaderCompiler(cls, version, flexible).compile()


class _ReaderCompiler:
    """Variables of the generated code: `b` is the buffer, `p` the position, `end` the size of the buffer."""

    def __init__(self, cls: type, version: int, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.source = Source(f"reader of {cls.__name__} version {version}")
        self.source.known |= {
            "continue_uvarint": continue_uvarint,
            "read_uuid": read_uuid,
            "read_uvarint": read_uvarint,
            "refuse_length": refuse_length,
            "skip_tags": skip_tags,
        }
        self.run: list[tuple[Fixed[Any], str]] = []  # adjacent fixed-width fields that are not read yet

    def compile(self) -> Reader:
        self.source.add("end = len(b)")
        message = self.struct(self.cls)
        self.source.add(f"return {message}, p")
        return self.source.function("read(b, p)")

    # Fixed-width runs

    def flush(self) -> None:
        if not self.run:
            return
        letters = "".join(kind.letter for kind, _ in self.run)
        targets = ", ".join(name for _, name in self.run)
        if letters == _BYTE.letter:
            self.source.add(f"{targets} = b[p]")
        else:
            self.source.add(f"{targets}, = {self.source.struct(letters, 'unpack_from')}(b, p)")
        self.source.add(f"p += {sum(kind.size for kind, _ in self.run)}")
        for kind, name in self.run:
            if isinstance(kind, Uuid):
                self.source.add(f"{name} = read_uuid({name})")
        self.run.clear()

    def fixed(self, kind: Fixed[Any], hint: str) -> str:
        name = self.source.fresh(hint)
        self.run.append((kind, name))
        return name

    # Kinds; each returns the expression of its value

    def value(self, kind: Kind[Any], what: str, null: bool) -> str:
        match kind:
            case Fixed():
                return self.fixed(kind, what)
            case Text():
                return self.sized(what, null, short=True, make='str(b[p:{stop}], "utf-8")')
            case Blob():
                return self.sized(what, null, short=False, make="bytes(b[p:{stop}])")
            case Array():
                return self.array(kind, what, null)
            case Nested() if null:
                return self.nullable_struct(kind, what)
            case Nested():
                return self.struct(kind.cls)
        raise TypeError(f"cannot read {kind!r}")

    def length(self, short: bool) -> str:
        """Read a length or count, -1 for null."""
        size = self.source.fresh("length")
        if self.flexible:
            self.run.append((_BYTE, size))
            self.flush()
            with self.source.block(f"if {size} > 127:"):
                self.source.add(f"{size}, p = continue_uvarint(b, p, {size})")
            self.source.add(f"{size} -= 1")
        else:
            self.run.append((_SHORT if short else _LONG, size))
            self.flush()
        return size

    @contextmanager
    def unless_null(self, null: bool, size: str, result: str) -> Iterator[None]:
        """The branch of a value that is not null; no branch if null is not allowed."""
        if not null:
            yield
            return
        with self.source.block(f"if {size} == -1:"):
            self.source.add(f"{result} = None")
        with self.source.block("else:"):
            yield

    def refuse_if(self, condition: str, what: str, size: str) -> None:
        with self.source.block(f"if {condition}:"):
            self.source.add(f"raise refuse_length({what!r}, {size})")

    def sized(self, what: str, null: bool, short: bool, make: str) -> str:
        size = self.length(short)
        result, stop = self.source.fresh(what), self.source.fresh("stop")
        with self.unless_null(null, size, result):
            self.source.add(f"{stop} = p + {size}")
            too_long = f" or {size} > {MAX_STRING_BYTES}" if short and self.flexible else ""
            self.refuse_if(f"{size} < 0 or {stop} > end{too_long}", what, size)
            self.source.add(f"{result} = {make.format(stop=stop)}")
            self.source.add(f"p = {stop}")
        return result

    def array(self, kind: Array[Any], what: str, null: bool) -> str:
        count = self.length(short=False)
        result = self.source.fresh(what)
        least = least_size(kind.of, self.version, self.flexible)
        with self.unless_null(null, count, result):
            self.refuse_if(f"{count} < 0 or {count} * {least} > end - p", what, count)
            if isinstance(kind.of, Fixed) and not isinstance(kind.of, Uuid):
                self.source.known["unpack_from"] = _unpack_from
                self.source.add(f'{result} = unpack_from(f">{{{count}}}{kind.of.letter}", b, p)')
                self.source.add(f"p += {count} * {kind.of.size}")
            else:
                self.elements(kind.of, what, count, result)
        return result

    def elements(self, of: Kind[Any], what: str, count: str, result: str) -> None:
        self.source.add(f"{result} = []")
        with self.source.block(f"for _ in range({count}):"):
            element = self.value(of, what, null=False)
            self.flush()
            self.source.add(f"{result}.append({element})")
        self.source.add(f"{result} = tuple({result})")

    def nullable_struct(self, kind: Nested[Any], what: str, least_mark: int = 0) -> str:
        """A struct behind a marker byte, negative for null (KIP-893); in a tagged field 0 is null as well."""
        result, marker = self.source.fresh(what), self.source.fresh("marker")
        self.run.append((_MARKER, marker))
        self.flush()
        self.source.add(f"{result} = None")
        with self.source.block(f"if {marker} >= {least_mark}:"):
            self.source.add(f"{result} = {self.struct(kind.cls)}")
        return result

    # Structs

    def struct(self, cls: type) -> str:
        """Read the fields and return the constructor call; fields that this version lacks get their defaults."""
        present = [field for field in fields_of(cls) if field.present(self.version)]
        arguments = {
            field.name: self.value(field.kind, field.name, field.null_allowed(self.version))
            for field in present
            if field.tag is None
        }
        if self.flexible:
            arguments |= self.tags([field for field in present if field.tag is not None])
        self.flush()
        made = self.source.let(cls.__name__, cls)
        return f"{made}({', '.join(f'{name}={value}' for name, value in arguments.items())})"

    def tags(self, known: list[Field]) -> dict[str, str]:
        """Read the tagged fields. The last of two with one tag counts; their order is not checked."""
        count = self.source.fresh("tags")
        self.run.append((_BYTE, count))
        self.flush()
        with self.source.block(f"if {count} > 127:"):
            self.source.add(f"{count}, p = continue_uvarint(b, p, {count})")
        if not known:
            with self.source.block(f"if {count}:"):
                self.source.add(f"p = skip_tags(b, p, {count})")
            return {}
        results = {field.name: self.source.fresh(field.name) for field in known}
        for field in known:
            self.source.add(f"{results[field.name]} = {self.source.let('default', field.default)}")
        with self.source.block(f"for _ in range({count}):"):
            self.one_tag(known, results)
        return results

    def one_tag(self, known: list[Field], results: dict[str, str]) -> None:
        tag, size, stop = self.source.fresh("tag"), self.source.fresh("size"), self.source.fresh("stop")
        self.source.add(f"{tag}, p = read_uvarint(b, p)")
        self.source.add(f"{size}, p = read_uvarint(b, p)")
        self.source.add(f"{stop} = p + {size}")
        self.refuse_if(f"{stop} > end", "tagged field", size)
        for field in known:
            with self.source.block(f"if {tag} == {field.tag}:"):
                null = field.null_allowed(self.version)
                if null and isinstance(field.kind, Nested):
                    value = self.nullable_struct(field.kind, field.name, least_mark=1)
                else:
                    value = self.value(field.kind, field.name, null)
                self.flush()
                self.source.add(f"{results[field.name]} = {value}")
                self.refuse_if(f"p != {stop}", field.name, size)
        self.source.add(f"p = {stop}")


_BYTE = Fixed[int]("B", 1)
_MARKER = Fixed[int]("b", 1)
_SHORT = Fixed[int]("h", 2)
_LONG = Fixed[int]("i", 4)


def least_size(kind: Kind[Any], version: int, flexible: bool) -> int:
    """The smallest size of a value; at least one byte, so that a false count cannot cause an endless loop."""
    match kind:
        case Fixed():
            return kind.size
        case Text():
            return 1 if flexible else 2
        case Blob() | Array():
            return 1 if flexible else 4
        case Nested():
            fields = [field for field in fields_of(kind.cls) if field.present(version) and field.tag is None]
            least = (
                sum(
                    # a null struct is its marker byte alone
                    1
                    if isinstance(field.kind, Nested) and field.nullable is not None
                    else least_size(field.kind, version, flexible)
                    for field in fields
                )
                + flexible
            )
            if least > 0:
                return least
    raise TypeError(f"{kind!r} takes no bytes in version {version}")
