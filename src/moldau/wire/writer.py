"""Compile the encoder of one message in one version to straight-line Python that appends to a bytearray.

Adjacent fixed-width fields, and a fixed-width length that follows them, are packed in one call. A value that the
version lacks is an error unless the field is declared ignorable. `codec` converts the newest form to older ones and
raises the errors that callers see.
"""

from collections.abc import Callable
from struct import pack
from typing import Any

from moldau.wire.declare import Array, Blob, Field, Fixed, Kind, Nested, Text, Uuid, fields_of
from moldau.wire.primitives import MAX_STRING_BYTES, Unencodable, uvarint
from moldau.wire.source import Source

Writer = Callable[[Any], bytearray]


def compile_writer(cls: type, version: int, flexible: bool) -> Writer:
    return _WriterCompiler(cls, version, flexible).compile()


def lacks(field: str, version: int) -> Unencodable:
    return Unencodable(f"{field} is set, but version {version} has no such field")


def not_null(field: str, version: int) -> Unencodable:
    return Unencodable(f"{field} is null, which version {version} does not allow")


def too_long(field: str) -> Unencodable:
    return Unencodable(f"{field} is longer than {MAX_STRING_BYTES} bytes")


class _WriterCompiler:
    """Variables of the generated code: `m` is the message, `out` the encoded bytes."""

    def __init__(self, cls: type, version: int, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.source = Source(f"writer of {cls.__name__} version {version}")
        self.source.known |= {"lacks": lacks, "not_null": not_null, "pack": pack, "too_long": too_long}
        self.source.known["uvarint"] = uvarint
        self.run: list[tuple[str, str]] = []  # adjacent fixed-width letters and expressions that are not packed yet
        self.out = "out"

    def compile(self) -> Writer:
        self.source.add("out = bytearray()")
        self.struct(self.cls, "m")
        self.flush()
        self.source.add("return out")
        return self.source.function("write(m)")

    # Fixed-width runs

    def flush(self) -> None:
        if not self.run:
            return
        letters = "".join(letter for letter, _ in self.run)
        expressions = ", ".join(expression for _, expression in self.run if expression)
        if expressions:
            self.source.add(f"{self.out} += {self.source.struct(letters, 'pack')}({expressions})")
        else:
            self.source.add(f"{self.out} += {bytes(len(letters))!r}")
        self.run.clear()

    # Kinds

    def value(self, kind: Kind[Any], expression: str, what: str, null: bool) -> None:
        match kind:
            case Fixed():
                self.run.append((kind.letter, f"{expression}.bytes" if isinstance(kind, Uuid) else expression))
            case Text():
                self.sized(expression, what, null, text=True)
            case Blob():
                self.sized(expression, what, null, text=False)
            case Array():
                self.array(kind, expression, what, null)
            case Nested() if null:
                self.nullable_struct(kind, expression)
            case Nested():
                self.struct(kind.cls, expression)
            case _:
                raise TypeError(f"cannot write {kind!r}")

    def length(self, value: str, original: str, what: str, null: bool, short: bool) -> None:
        """Write the length or count of `value`, or that of null when `original` is None."""
        if not self.flexible:
            count = f"-1 if {original} is None else len({value})" if null else f"len({value})"
            self.run.append(("h" if short else "i", count))
            return
        self.flush()
        size = self.source.fresh("length")
        self.source.add(f"{size} = " + (f"0 if {original} is None else " if null else "") + f"len({value}) + 1")
        with self.source.block(f"if {size} < 128:"):
            self.source.add(f"{self.out}.append({size})")
        with self.source.block("else:"):
            if short:
                with self.source.block(f"if {size} > {MAX_STRING_BYTES + 1}:"):
                    self.source.add(f"raise too_long({what!r})")
            self.source.add(f"{self.out} += uvarint({size})")

    def sized(self, expression: str, what: str, null: bool, text: bool) -> None:
        original = self.source.fresh(what)
        self.source.add(f"{original} = {expression}")
        raw = original
        if text or null:
            raw = self.source.fresh("raw")
            made = f"{original}.encode()" if text else original
            self.source.add(f'{raw} = b"" if {original} is None else {made}' if null else f"{raw} = {made}")
        self.length(raw, original, what, null, short=text)
        self.flush()
        self.source.add(f"{self.out} += {raw}")

    def array(self, kind: Array[Any], expression: str, what: str, null: bool) -> None:
        original = self.source.fresh(what)
        self.source.add(f"{original} = {expression}")
        items = original
        if null:
            items = self.source.fresh("items")
            self.source.add(f"{items} = () if {original} is None else {original}")
        self.length(items, original, what, null, short=False)
        self.flush()
        if isinstance(kind.of, Fixed) and not isinstance(kind.of, Uuid):
            self.source.add(f'{self.out} += pack(f">{{len({items})}}{kind.of.letter}", *{items})')
            return
        element = self.source.fresh(what)
        with self.source.block(f"for {element} in {items}:"):
            self.value(kind.of, element, what, null=False)
            self.flush()

    def nullable_struct(self, kind: Nested[Any], expression: str, null_mark: int = 255) -> None:
        """A struct behind a marker byte, -1 for null (KIP-893); in a tagged field 0 is null."""
        self.flush()
        value = self.source.fresh("struct")
        self.source.add(f"{value} = {expression}")
        with self.source.block(f"if {value} is None:"):
            self.source.add(f"{self.out}.append({null_mark})")
        with self.source.block("else:"):
            self.source.add(f"{self.out}.append(1)")
            self.struct(kind.cls, value)
            self.flush()

    # Structs

    def struct(self, cls: type, expression: str) -> None:
        fields = fields_of(cls)
        for field in fields:
            if field.present(self.version):
                self.forbid_null(field, expression)
            elif not field.ignorable:
                default = self.source.let("default", field.default)
                with self.source.block(f"if {expression}.{field.name} != {default}:"):
                    self.source.add(f"raise lacks({_title(cls, field)!r}, {self.version})")
        present = [field for field in fields if field.present(self.version)]
        for field in present:
            if field.tag is None:
                null = field.null_allowed(self.version)
                self.value(field.kind, f"{expression}.{field.name}", field.name, null)
        if self.flexible:
            self.tags([field for field in present if field.tag is not None], expression)

    def forbid_null(self, field: Field, expression: str) -> None:
        """Only where another version allows null: elsewhere the type forbids it."""
        if field.nullable is not None and not field.null_allowed(self.version):
            with self.source.block(f"if {expression}.{field.name} is None:"):
                self.source.add(f"raise not_null({field.name!r}, {self.version})")

    def tags(self, known: list[Field], expression: str) -> None:
        """Write the tagged fields that differ from their defaults, in the order of their tags (KIP-482)."""
        if not known:
            self.run.append(("x", ""))
            return
        self.flush()
        section, count, outer = self.source.fresh("section"), self.source.fresh("tags"), self.out
        self.source.add(f"{section} = bytearray()")
        self.source.add(f"{count} = 0")
        for field in sorted(known, key=lambda field: field.tag or 0):
            default = self.source.let("default", field.default)
            with self.source.block(f"if {expression}.{field.name} != {default}:"):
                self.out = self.source.fresh("tagged")
                self.source.add(f"{self.out} = bytearray()")
                null = field.null_allowed(self.version)
                if null and isinstance(field.kind, Nested):
                    self.nullable_struct(field.kind, f"{expression}.{field.name}", null_mark=0)
                else:
                    self.value(field.kind, f"{expression}.{field.name}", field.name, null)
                self.flush()
                self.source.add(f"{section} += uvarint({field.tag}) + uvarint(len({self.out})) + {self.out}")
                self.source.add(f"{count} += 1")
        self.out = outer
        self.source.add(f"{self.out} += uvarint({count}) + {section}")


def _title(cls: type, field: Field) -> str:
    return f"{cls.__name__}.{field.name}"
