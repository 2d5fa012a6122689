"""Encrypted values: only the right key, topic and record key open them, and nothing changed goes unnoticed."""

import base64
import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.errors import InvalidUse
from moldau.client.serializers.encryption import HEADER, MOST_CIPHERS, DecryptionFailed, Encrypted
from moldau.client.serializers.keys import KeyDirectory, Keys, KeyUnknown
from moldau.client.serializers.port import Headers, SerializerContext

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
KEYS = Keys({"2026-10": OLD, "2026-11": NEW}, current="2026-11")


@dataclasses.dataclass
class Order:
    id: str
    amount: int


@dataclasses.dataclass
class Stored:
    """A record as the broker has it."""

    raw: bytes
    headers: Headers
    topic: str = "orders"
    key: bytes | None = b"k"

    def read(self, serde: Encrypted[Any]) -> Any:
        return serde.deserialize(self.raw, SerializerContext(self.topic, "value", self.headers, self.key))


def stored(value: Any, serde: Encrypted[Any], topic: str = "orders", key: bytes | None = b"k") -> Stored:
    context = SerializerContext(topic, "value", [], key)
    raw = serde.serialize(value, context)
    assert raw is not None
    return Stored(raw, context.headers, topic, key)


@given(st.binary(max_size=100), st.text(min_size=1, max_size=20), st.none() | st.binary(max_size=20))
def test_what_was_encrypted_is_read_back(value: bytes, topic: str, key: bytes | None) -> None:
    record = stored(value, Encrypted(bytes, keys=KEYS), topic, key)
    assert record.read(Encrypted(bytes, keys=KEYS)) == value
    assert record.headers == [(HEADER, b"2026-11")]


@given(st.binary(max_size=60), st.data())
def test_no_flipped_bit_goes_unnoticed(value: bytes, data: st.DataObject) -> None:
    serde = Encrypted(bytes, keys=KEYS)
    record = stored(value, serde)
    bit = data.draw(st.integers(0, len(record.raw) * 8 - 1))
    changed = bytearray(record.raw)
    changed[bit // 8] ^= 1 << bit % 8
    record.raw = bytes(changed)
    with pytest.raises(DecryptionFailed, match="changed"):
        record.read(serde)


@given(st.binary(max_size=60), st.data())
def test_no_truncation_goes_unnoticed(value: bytes, data: st.DataObject) -> None:
    serde = Encrypted(bytes, keys=KEYS)
    record = stored(value, serde)
    record.raw = record.raw[: data.draw(st.integers(1, len(record.raw) - 1))]
    with pytest.raises(DecryptionFailed, match="truncated"):
        record.read(serde)


@given(st.binary(max_size=100), st.sampled_from([b"2026-10", b"2026-11", b"x", None, b"\xff", b"../current"]))
def test_any_bytes_and_key_id_are_refused_with_one_of_two_errors(raw: bytes, key_id: bytes | None) -> None:
    with pytest.raises((DecryptionFailed, KeyUnknown)):
        Stored(raw, [(HEADER, key_id)]).read(Encrypted(bytes, keys=KEYS))


@given(
    st.binary(max_size=4),
    st.binary(max_size=4),
    st.text("ab", min_size=1, max_size=3),
    st.text("ab", min_size=1, max_size=3),
)
def test_a_value_opens_for_its_own_topic_and_key_only(
    key: bytes, other_key: bytes, topic: str, other_topic: str
) -> None:
    serde = Encrypted(str, keys=KEYS)
    record = stored("secret", serde, topic, key)
    moved = dataclasses.replace(record, topic=other_topic, key=other_key)
    if (topic, key) == (other_topic, other_key):
        assert moved.read(serde) == "secret"
    else:
        with pytest.raises(DecryptionFailed, match=f"for another topic than {other_topic} or for another record key"):
            moved.read(serde)


def test_an_empty_key_is_not_null() -> None:
    serde = Encrypted(str, keys=KEYS)
    with pytest.raises(DecryptionFailed):
        dataclasses.replace(stored("secret", serde, key=b""), key=None).read(serde)


def test_the_wrong_key_is_refused() -> None:
    record = stored("secret", Encrypted(str, keys=KEYS))
    with pytest.raises(DecryptionFailed, match="key '2026-11' does not decrypt it: it is another key of that name"):
        record.read(Encrypted(str, keys=Keys({"2026-11": OLD}, current="2026-11")))
    record.headers = [(HEADER, b"2026-10")]
    with pytest.raises(DecryptionFailed, match="key '2026-10' does not decrypt it"):
        record.read(Encrypted(str, keys=KEYS))


def test_an_unknown_key_id_says_which_and_what_there_is() -> None:
    record = stored("secret", Encrypted(str, keys=KEYS))
    with pytest.raises(KeyUnknown, match="no key '2026-11'; there are: 2026-10"):
        record.read(Encrypted(str, keys=Keys({"2026-10": OLD}, current="2026-10")))


def test_records_of_before_a_rotation_stay_readable() -> None:
    before = stored("a", Encrypted(str, keys=Keys({"2026-10": OLD}, current="2026-10")))
    after = stored("b", Encrypted(str, keys=KEYS))
    assert [before.headers, after.headers] == [[(HEADER, b"2026-10")], [(HEADER, b"2026-11")]]
    assert [before.read(Encrypted(str, keys=KEYS)), after.read(Encrypted(str, keys=KEYS))] == ["a", "b"]


def test_equal_values_have_different_bytes() -> None:
    serde = Encrypted(str, keys=KEYS)
    assert len({stored("same", serde).raw for _ in range(100)}) == 100


def test_the_form_is_the_documented_one() -> None:
    """Another program can write and read it: version, nonce, AES-GCM; bound to version, key id, topic and key."""
    bound = b"\x01" + b"\x00\x072026-11" + b"\x00\x06orders" + b"\x01k"
    nonce = b"n" * 12
    by_hand = Stored(b"\x01" + nonce + AESGCM(NEW).encrypt(nonce, b"secret", bound), [(HEADER, b"2026-11")])
    assert by_hand.read(Encrypted(str, keys=KEYS)) == "secret"


def test_models_and_tombstones_pass_through() -> None:
    serde = Encrypted(Order, keys=KEYS)
    record = stored(Order("a", 5), serde)
    assert record.read(serde) == Order("a", 5)
    assert b"amount" not in record.raw
    context = SerializerContext("orders", "value", [], b"k")
    assert serde.serialize(None, context) is None  # type: ignore[arg-type]
    assert context.headers == []
    assert serde.deserialize(None, context) is None


def test_a_record_that_is_passed_on_names_its_new_key_only() -> None:
    old = stored("secret", Encrypted(str, keys=Keys({"2026-10": OLD}, current="2026-10")))
    context = SerializerContext("copy", "value", [("trace", b"1"), *old.headers], None)
    Encrypted(str, keys=KEYS).serialize("secret", context)
    assert context.headers == [("trace", b"1"), (HEADER, b"2026-11")]


def test_plaintext_is_refused_unless_asked_for() -> None:
    plain = Stored(b"hello", [])
    with pytest.raises(DecryptionFailed, match=f"not encrypted: the record has no header {HEADER}"):
        plain.read(Encrypted(str, keys=KEYS))
    lenient = Encrypted(str, keys=KEYS, accept_plaintext=True)
    assert plain.read(lenient) == "hello"
    assert stored("x", lenient).read(lenient) == "x"


def test_a_fixed_topic_name_reads_copies() -> None:
    record = stored("secret", Encrypted(str, keys=KEYS))
    record.topic = "orders-dead"
    assert record.read(Encrypted(str, keys=KEYS, topic="orders")) == "secret"


def test_keys_of_records_are_not_encrypted() -> None:
    with pytest.raises(InvalidUse, match="record keys are not encrypted"):
        Encrypted(str, keys=KEYS).serialize("k", SerializerContext("orders", "key"))


def test_each_key_is_asked_for_once_up_to_a_bound() -> None:
    asked: list[str] = []

    class Vault:
        def current(self) -> str:
            return "2026-11"

        def get(self, key_id: str) -> bytes:
            asked.append(key_id)
            return NEW

    serde = Encrypted(str, keys=Vault())
    record = stored("a", serde)
    assert [record.read(serde) for _ in range(3)] == ["a"] * 3
    assert asked == ["2026-11"]
    for number in range(2 * MOST_CIPHERS):
        with pytest.raises(DecryptionFailed):
            Stored(record.raw, [(HEADER, b"%d" % number)]).read(serde)
    assert len(serde._ciphers) == MOST_CIPHERS


@pytest.mark.parametrize(
    ("keys", "current", "problem"),
    [
        ({"a": OLD}, "b", "the current key 'b' is not among the keys"),
        ({"a": OLD[:16]}, "a", "key 'a' has 16 bytes; AES-256 needs 32"),
        ({"a/b": OLD}, "a/b", "'a/b' is no key id"),
    ],
)
def test_keys_that_cannot_work_are_refused_at_once(keys: dict[str, bytes], current: str, problem: str) -> None:
    with pytest.raises(InvalidUse, match=problem):
        Keys(keys, current=current)


def test_keys_never_show_in_text() -> None:
    shown = repr(Encrypted(str, keys=KEYS))
    assert "2026-11" in shown
    assert repr(OLD)[2:10] not in shown


def test_a_directory_of_keys_rotates_without_a_restart(tmp_path: Path) -> None:
    (tmp_path / "2026-10").write_bytes(OLD)
    (tmp_path / "current").write_text("2026-10\n")
    serde = Encrypted(str, keys=KeyDirectory(tmp_path))
    before = stored("a", serde)
    (tmp_path / "2026-11").write_text(base64.b64encode(NEW).decode() + "\n")
    (tmp_path / "next").write_text("2026-11")
    os.replace(tmp_path / "next", tmp_path / "current")
    after = stored("b", serde)
    assert [before.headers, after.headers] == [[(HEADER, b"2026-10")], [(HEADER, b"2026-11")]]
    assert [before.read(serde), after.read(serde)] == ["a", "b"]
    assert after.read(Encrypted(str, keys=KEYS)) == "b"


@pytest.mark.parametrize("key_id", ["../secret", "current", "", "missing", ".hidden", "bad", "a\0b"])
def test_key_ids_of_strangers_open_no_other_file(tmp_path: Path, key_id: str) -> None:
    directory = tmp_path / "keys"
    directory.mkdir()
    for file in (tmp_path / "secret", directory / "good", directory / ".hidden"):
        file.write_bytes(OLD)
    (directory / "bad").write_bytes(b"short")
    (directory / "current").write_text("good")
    with pytest.raises(KeyUnknown):
        KeyDirectory(directory).get(key_id)


@pytest.mark.parametrize("current", [None, "", "missing"])
def test_a_directory_without_a_current_key_is_refused_at_once(tmp_path: Path, current: str | None) -> None:
    if current is not None:
        (tmp_path / "current").write_text(current)
    with pytest.raises(InvalidUse):
        KeyDirectory(tmp_path)
