"""Hypothesis strategies for wire messages, from their declarations: values that a version can encode."""

from functools import cache
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from moldau.wire.declare import (
    BOOL,
    FLOAT64,
    Array,
    Blob,
    Field,
    Fixed,
    Kind,
    Nested,
    Text,
    Uuid,
    fields_of,
    layout_of,
)

RANGES = {letter: 8 * size for letter, size in (("b", 1), ("h", 2), ("i", 4), ("q", 8))}

# The other implementations reject these although the protocol allows them: unknown error codes, invalid dates.
LIMITED: dict[str, st.SearchStrategy[Any]] = {
    "error_code": st.sampled_from([-1, 0, 3, 35, 100]),
    "topic_config_error_code": st.sampled_from([0, 40]),
    "partition_error_code": st.sampled_from([0, 47]),
    "log_append_time_ms": st.integers(-1, 2**41),
    "retention_time_ms": st.integers(-1, 2**41),
    "session_lifetime_ms": st.integers(0, 2**41),
    "transaction_start_time_ms": st.integers(0, 2**41),
    "max_lifetime_ms": st.integers(-1, 2**41),
    "renew_period_ms": st.integers(-1, 2**41),
    "expiry_time_period_ms": st.integers(-1, 2**41),
    **{f"{what}_timestamp{unit}": st.integers(0, 2**41) for what in ("issue", "expiry", "max") for unit in ("", "_ms")},
}

STRINGS = st.text(max_size=6) | st.just("ř" * 100)  # the long one needs a two-byte compact length
BLOBS = st.binary(max_size=6) | st.just(bytes(300))


def form_of(cls: type, version: int) -> type:
    """The class that describes a version on the wire: an older form, or the message itself."""
    return next((form for until, form in layout_of(cls).older if version <= until), cls)


@cache
def messages(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Messages in their newest form that this version can encode."""
    form = form_of(cls, version)
    values = structs(form, version)
    return values if form is cls else values.map(lambda value: value.to_newest())


@cache
def structs(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    present = [field for field in fields_of(cls) if field.present(version)]
    return st.fixed_dictionaries({field.name: values_of(field, version) for field in present}).map(
        lambda values: cls(**values)
    )


def values_of(field: Field, version: int) -> st.SearchStrategy[Any]:
    found = LIMITED[field.name] if field.name in LIMITED else kinds(field.kind, version)
    return st.none() | found if field.null_allowed(version) else found


def kinds(kind: Kind[Any], version: int) -> st.SearchStrategy[Any]:
    match kind:
        case Fixed() if kind is BOOL:
            return st.booleans()
        case Uuid():
            return st.uuids(allow_nil=True)
        case Fixed() if kind is FLOAT64:
            return st.floats(allow_nan=False)  # which is not equal to itself
        case Fixed():
            bits = RANGES[kind.letter]
            return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        case Text():
            return STRINGS
        case Blob():
            return BLOBS
        case Array(of=Fixed()):
            return st.lists(kinds(kind.of, version), max_size=3).map(tuple)
        case Array():
            return st.lists(kinds(kind.of, version), max_size=2).map(tuple)
        case Nested():
            return structs(kind.cls, version)  # type: ignore[arg-type]  # mypy takes no class as hashable
    raise TypeError(f"no values for {kind!r}")


def sample(cls: type, version: int) -> Any:
    """One message with a value in every field of the version: no null, no empty array, no missing tag."""
    form: Any = form_of(cls, version)
    made = sample_struct(form, version)
    return made if form is cls else made.to_newest()


def sample_struct(cls: type, version: int) -> Any:
    present = [field for field in fields_of(cls) if field.present(version)]
    return cls(**{field.name: sample_kind(field.kind, version, number) for number, field in enumerate(present, 1)})


def sample_kind(kind: Kind[Any], version: int, number: int) -> Any:
    match kind:
        case Fixed() if kind is BOOL:
            return True
        case Uuid():
            return UUID(int=(7 << 64) + number)
        case Fixed():
            return number
        case Text():
            return f"dráha {number}"
        case Blob():
            return b"opaque"
        case Array():
            return (sample_kind(kind.of, version, number), sample_kind(kind.of, version, number + 1))
        case Nested():
            return sample_struct(kind.cls, version)
    raise TypeError(f"no value for {kind!r}")
