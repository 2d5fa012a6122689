"""Declarations of messages, one for all versions of a message. `codec` compiles readers and writers from them.

    @struct
    class DeleteTopicState:
        name: str | None = wire(STRING, nullable=6, default=None)
        topic_id: UUID = wire(UUID_)

    @message(key=20, versions=(1, 6), flexible=4)
    class DeleteTopicsRequest:
        topics: tuple[DeleteTopicState, ...] = wire(Array(DeleteTopicState))
        timeout_ms: int = wire(INT32)

The classes are frozen, slotted values with keyword-only constructors, and mypy checks each annotation against its
kind. A class has the fields of all versions; a field that a version lacks has its default after decoding. Where
versions differ in structure, the class is the newest form and an `older_form` converts from and to an older one:

    @older_form(of=DeleteTopicsRequest, until=5)
    class DeleteTopicsByName:
        topic_names: tuple[str, ...] = wire(Array(STRING))
        timeout_ms: int = wire(INT32)
        def to_newest(self) -> DeleteTopicsRequest: …
        @classmethod
        def from_newest(cls, newest: DeleteTopicsRequest) -> "DeleteTopicsByName": …

Dataclasses take a millisecond per class to build, which for hundreds of classes is half a second of every start. The
builder here takes a tenth of that, and its constructors are a third faster.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NoReturn, Protocol, Self, TypeVar, cast, dataclass_transform, overload
from uuid import UUID

T = TypeVar("T")

NEWEST: Final = 0x7FFF  # the end of a version range that is open


class Kind(Generic[T]):
    """The wire format of a value; T is its type in Python."""

    __slots__ = ()


class Fixed(Kind[T]):
    """A value of fixed width, by its letter in the `struct` module."""

    __slots__ = ("letter", "size")

    def __init__(self, letter: str, size: int) -> None:
        self.letter = letter
        self.size = size


class Uuid(Fixed[UUID]):
    """16 bytes; all zero stands for none."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("16s", 16)


class Text(Kind[str]):
    """A length and UTF-8 bytes."""

    __slots__ = ()


class Name(Text):
    """A text that names a topic, a group or a transactional id: `names.renamed` finds them in messages."""

    __slots__ = ("of",)

    def __init__(self, of: str) -> None:
        self.of = of


class NameOf(Text):
    """The name of a resource whose type is in another field of the same struct, as a number."""

    __slots__ = ("field", "types")

    def __init__(self, field: str, types: dict[int, Name]) -> None:
        self.field = field
        self.types = types


class Blob(Kind[bytes]):
    """A length and bytes: plain ones, or record batches, which stay opaque."""

    __slots__ = ()


class Array(Kind[tuple[T, ...]]):
    """A count and elements."""

    __slots__ = ("of",)

    def __init__(self, of: Kind[T] | type[T]) -> None:
        self.of = kind_of(of)


class Nested(Kind[T]):
    """A struct within another; declarations name its class."""

    __slots__ = ("cls",)

    def __init__(self, cls: type[T]) -> None:
        self.cls = cls


INT8: Final = Fixed[int]("b", 1)
INT16: Final = Fixed[int]("h", 2)
INT32: Final = Fixed[int]("i", 4)
INT64: Final = Fixed[int]("q", 8)
UINT16: Final = Fixed[int]("H", 2)
FLOAT64: Final = Fixed[float]("d", 8)
BOOL: Final = Fixed[bool]("?", 1)
UUID_: Final = Uuid()
TOPIC_ID: Final = Uuid()
STRING: Final = Text()
TOPIC_NAME: Final = Name("topic")
GROUP_ID: Final = Name("group")
TRANSACTIONAL_ID: Final = Name("transactional id")
NAME_PATTERN: Final = Name("regular expression")  # for whole names
RESOURCE_NAME: Final = NameOf("resource_type", {2: TOPIC_NAME, 32: GROUP_ID})  # config resources
COORDINATOR_KEY: Final = NameOf("key_type", {0: GROUP_ID, 1: TRANSACTIONAL_ID})
BYTES: Final = Blob()
RECORDS: Final = Blob()
SUBSCRIPTION: Final = Blob()  # of a classic consumer, in the embedded consumer protocol
ASSIGNMENT: Final = Blob()


def kind_of(kind: Kind[T] | type[T]) -> Kind[T]:
    return kind if isinstance(kind, Kind) else Nested(kind)


REQUIRED: Final[Any] = object()  # a constructor argument without a default


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field: its kind, its versions, and its default in other versions."""

    name: str
    kind: Kind[Any]
    since: int
    until: int
    nullable: int | None  # from this version on
    tag: int | None  # a tagged field in all its versions
    default: Any
    ignorable: bool  # a version without the field drops its value instead of failing

    def present(self, version: int) -> bool:
        return self.since <= version <= self.until

    def null_allowed(self, version: int) -> bool:
        return self.nullable is not None and version >= self.nullable


@dataclass(frozen=True, slots=True)
class Unnamed:
    """The run-time result of `wire()`; `struct` gives it its name."""

    field: Callable[[str], Field]


@overload
def wire(
    kind: Kind[T] | type[T],
    *,
    since: int = ...,
    until: int = ...,
    tag: int | None = ...,
    default: T = ...,
    ignorable: bool = ...,
) -> T: ...
@overload
def wire(
    kind: Kind[T] | type[T],
    *,
    nullable: int,
    since: int = ...,
    until: int = ...,
    tag: int | None = ...,
    default: T | None = ...,
    ignorable: bool = ...,
) -> T | None: ...
def wire(
    kind: Kind[Any] | type[Any],
    *,
    nullable: int | None = None,
    since: int = 0,
    until: int = NEWEST,
    tag: int | None = None,
    default: Any = REQUIRED,
    ignorable: bool = False,
) -> Any:
    """Declare a field. One that some version lacks, or that is tagged, needs a default."""
    if default is REQUIRED and (since > 0 or until < NEWEST or tag is not None):
        raise TypeError("a field that is not in every version needs a default")
    return Unnamed(lambda name: Field(name, kind_of(kind), since, until, nullable, tag, default, ignorable))


class Value:
    """Base of all declared classes: frozen, with equality, hash and repr by fields."""

    __slots__ = ()
    __wire_fields__: tuple[Field, ...] = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: use replace()")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.__wire_fields__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in self.__wire_fields__))

    def __repr__(self) -> str:
        shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.__wire_fields__)
        return f"{type(self).__qualname__}({shown})"


def fields_of(cls: type) -> tuple[Field, ...]:
    return cast(type[Value], cls).__wire_fields__


def replace(value: T, **changes: object) -> T:
    """The same value with some fields changed."""
    kept = {field.name: getattr(value, field.name) for field in fields_of(type(value))}
    return type(value)(**(kept | changes))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(wire,))
def struct(cls: type[T]) -> type[T]:
    """Build the class of a struct from its declaration."""
    fields = tuple(found.field(name) for name, found in vars(cls).items() if isinstance(found, Unnamed))
    names = [field.name for field in fields]
    namespace = {name: found for name, found in vars(cls).items() if name not in (*names, "__dict__", "__weakref__")}
    namespace |= {"__slots__": tuple(names), "__wire_fields__": fields, "__match_args__": ()}
    built = type(cls.__name__, (Value,), namespace)
    built.__init__ = _constructor_on_first_use(built, fields)  # type: ignore[misc]
    return cast(type[T], built)


def _constructor_on_first_use(cls: type, fields: tuple[Field, ...]) -> Any:
    """Compile a constructor when it is needed: that is most of the cost of a class, and a process uses few."""

    def __init__(self: object, **values: object) -> None:  # noqa: N807
        compiled = _constructor(cls, fields)
        cls.__init__ = compiled  # type: ignore[misc]
        compiled(self, **values)

    return __init__


def _constructor(cls: type, fields: tuple[Field, ...]) -> Any:
    """`__init__` compiled from source; it sets slots directly, as `__setattr__` is forbidden."""
    if not fields:
        return object.__init__
    known: dict[str, Any] = {f"set_{field.name}": vars(cls)[field.name].__set__ for field in fields}
    known |= {f"default_{field.name}": field.default for field in fields}
    arguments = (field.name if field.default is REQUIRED else f"{field.name}=default_{field.name}" for field in fields)
    body = "\n".join(f"    set_{field.name}(self, {field.name})" for field in fields)
    exec(f"def __init__(self, *, {', '.join(arguments)}):\n{body}", known)
    return known["__init__"]


class OlderForm(Protocol):
    """The form of a message in older versions, with conversions from and to its newest form."""

    def to_newest(self) -> Any: ...
    @classmethod
    def from_newest(cls, newest: Any) -> Self: ...


@dataclass(slots=True)
class Layout:
    """Key, versions and older forms of a message."""

    key: int  # the API key, or the type of a metadata record
    versions: tuple[int, int]  # lowest and highest
    flexible: int | None  # compact lengths and tag sections from this version on (KIP-482)
    older: list[tuple[int, type[OlderForm]]]  # (last version, form), oldest first

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(wire,))
def message(*, key: int, versions: tuple[int, int], flexible: int | None) -> Callable[[type[T]], type[T]]:
    """Build the class of a whole message, in its newest form."""

    def build(cls: type[T]) -> type[T]:
        built = struct(cls)
        built.__wire_layout__ = Layout(key, versions, flexible, [])  # type: ignore[attr-defined]
        return built

    return build


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(wire,))
def older_form(*, of: type, until: int) -> Callable[[type[T]], type[T]]:
    """Build the form that message `of` had in versions up to `until`; declare several oldest first."""

    def build(cls: type[T]) -> type[T]:
        built = struct(cls)
        layout_of(of).older.append((until, cast(type[OlderForm], built)))
        return built

    return build


def layout_of(cls: type) -> Layout:
    layout = getattr(cls, "__wire_layout__", None)
    if not isinstance(layout, Layout):
        raise TypeError(f"{cls.__name__} is not declared as a message")
    return layout
