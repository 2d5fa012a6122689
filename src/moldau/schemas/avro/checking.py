"""Walks over Avro payloads, as Python source that is generated and compiled once per schema. Builds no values.

fastavro would decode them, but takes negative indexes and integers out of range, and crashes on deep recursion.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from moldau.schemas.avro.schema import AvroSchema
from moldau.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, Primitive, Record, Union, name_of
from moldau.schemas.schema import ParsedSchema, reason

MAX_PAYLOAD_DEPTH = 100  # records in records
MAX_PATH = 100  # characters of the path in a reason
MAX_EMPTY_ITEMS = 100_000  # items of an array that take no bytes: a few bytes could claim any number of them

Walk: TypeAlias = Callable[[bytes, int, int, int], int]


class Misfit(Exception):
    """A payload that is not of its schema: why, and in which field."""

    def __init__(self, text: str, path: str = "") -> None:
        self.text = text
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class AvroChecker:
    """Walks over payloads of one schema."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk

    def check(self, values: Sequence[bytes]) -> dict[int, str]:
        walk = self._walk
        faults: dict[int, str] = {}
        for index, value in enumerate(values):
            size = len(value)
            try:
                end = walk(value, 0, size, 0)
            except (Misfit, IndexError, UnicodeDecodeError) as fault:
                faults[index] = reason(str(fault if isinstance(fault, Misfit) else located("", fault)))
                continue
            if end != size:
                faults[index] = f"{size - end} bytes follow the value"
        return faults


def avro_checker(parsed: ParsedSchema) -> AvroChecker:
    assert isinstance(parsed, AvroSchema)
    if isinstance(parsed.root, Primitive) and parsed.root.kind == "bytes":
        return AvroChecker(_anything)  # Confluent's serializers write plain bytes without their length
    return AvroChecker(_Generator().compile(parsed.root))


def _anything(data: bytes, position: int, size: int, depth: int) -> int:
    return size


class _Generator:
    """Writes one function for each record, array, map and union; primitives are in line."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._waiting: list[tuple[str, AvroType]] = []
        self._lines: list[str] = []

    def compile(self, root: AvroType) -> Walk:
        name = self._function(root)
        while self._waiting:
            self._define(*self._waiting.pop())
        known = {"Misfit": Misfit, "located": located, "long": read_long, "short_long": read_int}
        exec(compile("\n".join(self._lines), "<avro schema>", "exec"), known)
        walk: Walk = known[name]  # type: ignore[assignment]
        return walk

    def _function(self, schema: AvroType) -> str:
        name = self._names.get(id(schema))
        if name is None:
            name = self._names[id(schema)] = f"walk_{len(self._names)}"
            self._waiting.append((name, schema))
        return name

    def _define(self, name: str, schema: AvroType) -> None:
        self._lines.append(f"def {name}(data, at, size, depth):")
        match schema:
            case Record():
                self._record(schema)
            case Array():
                self._blocks(schema.items, "item", text_key=False)
            case Map():
                self._blocks(schema.values, "value", text_key=True)
            case _:
                self._lines += _inside(self._inline(schema))
        self._lines.append("    return at")

    def _record(self, schema: Record) -> None:
        body = []
        for field in schema.fields:
            body += [f"field = {field.name!r}", *self._inline(field.type)]
        self._lines += [
            f"    if depth > {MAX_PAYLOAD_DEPTH}: raise Misfit('records are nested deeper than {MAX_PAYLOAD_DEPTH}')",
            "    field = ''",
            "    try:",
            *_inside(_inside(body or ["pass"])),
            "    except (Misfit, IndexError, UnicodeDecodeError) as fault:",
            "        raise located(field, fault) from None",
        ]

    def _blocks(self, inner: AvroType, what: str, *, text_key: bool) -> None:
        empty = not text_key and min_width(inner) == 0
        item = (self._inline(Primitive("string")) if text_key else []) + self._inline(inner)
        most = str(MAX_EMPTY_ITEMS) if empty else "size - at"
        self._lines += [
            "    while True:",
            "        count, at = long(data, at)",
            "        if count == 0: break",
            "        if count < 0:",
            "            count = -count",
            "            length, at = long(data, at)",
            "            if length < 0: raise Misfit('a block has a negative size')",
            f"        if count > {most}: raise Misfit(f'a block claims {{count}} {what}s, more than there can be')",
        ]
        if not empty:
            self._lines += ["        for _ in range(count):", *_inside(_inside(_inside(item)))]

    def _inline(self, schema: AvroType) -> list[str]:
        """Lines that move `at` behind one value."""
        match schema:
            case Primitive():
                return _PRIMITIVES[schema.kind]
            case Enum():
                return [
                    *_INDEX,
                    f"if not 0 <= n < {len(schema.symbols)}: raise Misfit(f'the enum has no symbol {{n}}')",
                ]
            case Fixed():
                return [f"at += {schema.size}", _SHORT]
            case Union():
                return self._union(schema)
        deeper = "depth + 1" if isinstance(schema, Record) else "depth"
        return [f"at = {self._function(schema)}(data, at, size, {deeper})"]

    def _union(self, schema: Union) -> list[str]:
        names = ", ".join(name_of(branch) for branch in schema.branches)[:100]
        lines = [
            *_INDEX,
            f"if not 0 <= n < {len(schema.branches)}: raise Misfit(f'the union has no branch {{n}}: ' + {names!r})",
            "branch = n",
        ]
        for index, branch in enumerate(schema.branches):  # flat: Python's compiler nests each elif in the one before
            if inner := self._inline(branch):
                lines += [f"if branch == {index}:", *_inside(inner)]
        return lines


def _inside(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


_SHORT = "if at > size: raise IndexError"
_INDEX = ["n = data[at]", "if n > 127: n, at = short_long(data, at)", "else: n, at = (n >> 1) ^ -(n & 1), at + 1"]
_LENGTH = [
    "n = data[at]",
    "if n > 127: n, at = long(data, at)",
    "else: n, at = (n >> 1) ^ -(n & 1), at + 1",
    "if n < 0: raise Misfit(f'a length of {n}')",
]
_PRIMITIVES = {
    "null": [],
    "boolean": ["if data[at] > 1: raise Misfit(f'a boolean is 0 or 1, not {data[at]}')", "at += 1"],
    "int": ["if data[at] > 127: n, at = short_long(data, at)", "else: at += 1"],
    "long": ["if data[at] > 127: n, at = long(data, at)", "else: at += 1"],
    "float": ["at += 4", _SHORT],
    "double": ["at += 8", _SHORT],
    "bytes": [*_LENGTH, "at += n", _SHORT],
    "string": [*_LENGTH, "start = at", "at += n", _SHORT, "data[start:at].decode()"],
}


def min_width(schema: AvroType, above: tuple[AvroType, ...] = ()) -> int:
    """The least number of bytes that a value takes, or 1 if it takes any."""
    match schema:
        case Primitive():
            return 0 if schema.kind == "null" else 1
        case Fixed():
            return min(schema.size, 1)
        case Record():
            if schema in above:
                return 1  # it contains itself, so no value of it ends here
            return max((min_width(field.type, (*above, schema)) for field in schema.fields), default=0)
    return 1


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A long in variable length and zigzag, and the position behind it."""
    value, at = _varint(data, at, 10)
    if value >= 2**64:
        raise Misfit("a long of more than 64 bits")
    return (value >> 1) ^ -(value & 1), at


def read_int(data: bytes, at: int) -> tuple[int, int]:
    """An int, likewise."""
    value, at = _varint(data, at, 5)
    if value >= 2**32:
        raise Misfit("an int of more than 32 bits")
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int, most: int) -> tuple[int, int]:
    value = 0
    for index in range(most):
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 128:
            return value, at + index + 1
    raise Misfit(f"an integer of more than {most} bytes")


def located(field: str, fault: Exception) -> Misfit:
    """The fault with the name of the field that it is in; from inner to outer they make a path."""
    if isinstance(fault, Misfit):
        path = f"{field}.{fault.path}" if fault.path else field
        return Misfit(fault.text, path if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}…")
    if isinstance(fault, UnicodeDecodeError):
        return Misfit(f"not UTF-8: {fault.reason} at {fault.start}", field)
    return Misfit("the value ends too early", field)
