"""Declarations and the codecs made from them: one form for all versions, and refusals of what a version cannot say."""

from uuid import UUID

import pytest

from moldau.wire.codec import Unencodable, UnsupportedVersion, decode, encode
from moldau.wire.declare import (
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID_,
    Array,
    message,
    older_form,
    replace,
    struct,
    wire,
)
from moldau.wire.primitives import ZERO_UUID


@struct
class Stop:
    name: str = wire(STRING)
    platform: str | None = wire(STRING, nullable=2, since=1, default=None, ignorable=True)


@message(key=-1, versions=(0, 3), flexible=3)
class Timetable:
    line: int = wire(INT16)
    stops: tuple[Stop, ...] = wire(Array(Stop))
    owner: UUID = wire(UUID_, since=1, default=ZERO_UUID, ignorable=True)
    detour: str | None = wire(STRING, nullable=2, since=1, default="")
    night: int = wire(INT64, tag=0, since=3, default=-1)
    first_stop: Stop | None = wire(Stop, nullable=3, since=3, default=None)


WHOLE = Timetable(
    line=22,
    stops=(Stop(name="Národní", platform="B"), Stop(name="Malostranská")),
    owner=UUID(int=5),
    detour=None,
    night=4,
    first_stop=Stop(name="Bílá Hora"),
)


def test_newest_version_keeps_everything() -> None:
    assert decode(Timetable, 3, encode(WHOLE, 3)) == WHOLE


def test_older_versions_give_defaults_for_what_they_lack() -> None:
    plain = Timetable(line=22, stops=(Stop(name="Národní"),))
    assert decode(Timetable, 0, encode(plain, 0)) == plain


def test_ignorable_fields_are_dropped() -> None:
    value = Timetable(line=1, stops=(Stop(name="a", platform="B"),), owner=UUID(int=5))
    assert decode(Timetable, 0, encode(value, 0)) == Timetable(line=1, stops=(Stop(name="a"),))


def test_other_fields_are_refused() -> None:
    with pytest.raises(Unencodable, match=r"Timetable.night is set, but version 2 has no such field"):
        encode(Timetable(line=1, stops=(), night=3), 2)


def test_null_is_refused_before_the_version_that_allows_it() -> None:
    with pytest.raises(Unencodable, match="detour is null, which version 1 does not allow"):
        encode(Timetable(line=1, stops=(), detour=None), 1)


@pytest.mark.parametrize("version", [0, 3])
def test_what_does_not_fit_is_refused(version: int) -> None:
    for value in (Timetable(line=40000, stops=()), Timetable(line=1, stops=(Stop(name="x" * 32768),))):
        with pytest.raises(Unencodable):
            encode(value, version)


def test_what_is_too_long_is_named() -> None:
    with pytest.raises(Unencodable, match="name is longer than 32767 bytes"):
        encode(Timetable(line=1, stops=(Stop(name="x" * 32768),)), 3)


def test_a_version_that_does_not_exist() -> None:
    with pytest.raises(UnsupportedVersion, match="versions 0 to 3, not 4"):
        encode(WHOLE, 4)
    with pytest.raises(UnsupportedVersion):
        decode(Timetable, -1, b"")


def test_only_messages_have_codecs() -> None:
    with pytest.raises(TypeError, match="not declared as a message"):
        encode(Stop(name="a"), 0)


def test_values_are_frozen_and_compared_by_their_fields() -> None:
    stop = Stop(name="a")
    with pytest.raises(AttributeError, match="frozen"):
        stop.name = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        stop.other = 1  # type: ignore[attr-defined]
    assert {stop: 1}[Stop(name="a")] == 1
    assert stop != Stop(name="b")
    assert stop != ("a", None)
    assert repr(stop) == "Stop(name='a', platform=None)"
    assert replace(stop, platform="B") == Stop(name="a", platform="B")


def test_constructors_take_names_and_miss_nothing() -> None:
    with pytest.raises(TypeError, match="name"):
        Stop()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Stop("a")  # type: ignore[misc]


def test_a_field_that_is_not_always_there_needs_a_default() -> None:
    for declaration in ({"since": 1}, {"until": 3}, {"tag": 0}):
        with pytest.raises(TypeError, match="needs a default"):
            wire(INT32, **declaration)


def test_long_lengths_in_compact_form() -> None:
    value = Timetable(line=1, stops=tuple(Stop(name="x" * size) for size in (0, 126, 127, 128, 16383, 32767)) * 50)
    assert decode(Timetable, 3, encode(value, 3)) == value


def test_rarer_kinds() -> None:
    @message(key=-1, versions=(0, 0), flexible=None)
    class Rare:
        port: int = wire(UINT16)
        rate: float = wire(FLOAT64)
        ids: tuple[UUID, ...] = wire(Array(UUID_))
        lists: tuple[tuple[int, ...], ...] = wire(Array(Array(INT32)))

    value = Rare(port=65535, rate=0.5, ids=(UUID(int=1), ZERO_UUID), lists=((1, 2), ()))
    assert decode(Rare, 0, encode(value, 0)) == value


def test_forms_older_than_each_other() -> None:
    @message(key=-1, versions=(0, 2), flexible=None)
    class Newest:
        names: tuple[str, ...] = wire(Array(STRING))

    @older_form(of=Newest, until=0)
    class Oldest:
        name: str = wire(STRING)

        def to_newest(self) -> Newest:
            return Newest(names=(self.name,))

        @classmethod
        def from_newest(cls, newest: Newest) -> "Oldest":
            return cls(name=newest.names[0])

    @older_form(of=Newest, until=1)
    class Older:
        joined: str = wire(STRING)

        def to_newest(self) -> Newest:
            return Newest(names=tuple(self.joined.split(",")))

        @classmethod
        def from_newest(cls, newest: Newest) -> "Older":
            return cls(joined=",".join(newest.names))

    assert encode(Newest(names=("a", "b")), 0) == b"\0\x01a"
    assert encode(Newest(names=("a", "b")), 1) == b"\0\x03a,b"
    assert decode(Newest, 0, b"\0\x01a") == Newest(names=("a",))
    assert decode(Newest, 1, b"\0\x03a,b") == decode(Newest, 2, encode(Newest(names=("a", "b")), 2))
