"""Subjects as `_schemas` tells them, and the rules that topics get from them."""

import json

import pytest

from moldau.broker.schemas import subjects as module
from moldau.broker.schemas.rules import UnknownSubject, rules_for
from moldau.broker.schemas.subjects import Removed, Subjects, Version, context_of, read
from moldau.log.settings import LogConfig
from moldau.replication.record_rules import Framing

INT, TEXT = '"int"', '"string"'


def told(subject: str, version: int, number: int, schema: str = INT, **more: object) -> Version | Removed | None:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": number, "schema": schema, "deleted": False, **more}
    return read(json.dumps(key).encode(), json.dumps(value).encode())


def filled(*changes: Version | Removed | None) -> Subjects:
    found = Subjects()
    for change in changes:
        assert change is not None
        found.apply(change)
    return found


def test_versions_come_and_go() -> None:
    found = filled(told("a", 1, 1), told("a", 2, 2, TEXT))
    assert [schema.id for schema in found.versions("a").values()] == [1, 2]
    deleted = told("a", 2, 2, TEXT, deleted=True)
    assert deleted is not None
    found.apply(deleted)
    assert list(found.versions("a")) == [1]
    found.apply(Removed("a", 1, up_to=True))
    assert found.versions("a") == {}
    found.apply(Removed("a", 1, up_to=False))
    found.apply(Removed("a", 2, up_to=False))
    found.apply(Removed("never", 2, up_to=True))
    assert found.subjects() == []
    assert found.generation == 7


def test_records_that_brokers_do_not_need() -> None:
    for key in ({"keytype": "CONFIG", "subject": None}, {"keytype": "MODE"}, {"keytype": "NOOP"}):
        assert read(json.dumps(key).encode(), b"{}") is None
    assert read(None, b"{}") is None
    gone = read(b'{"keytype": "SCHEMA", "subject": "a", "version": 3}', None)
    assert gone == Removed("a", 3, up_to=False)


@pytest.mark.parametrize(
    "key", [b"", b"[]", b"\xff", b'{"keytype": "SCHEMA"}', b'{"keytype": "SCHEMA", "subject": "a", "version": []}']
)
def test_records_that_cannot_be_read_are_left_out(key: bytes) -> None:
    assert read(key, b"{}") is None


def test_subjects_of_a_context() -> None:
    assert [context_of(each) for each in ("a", ":.eu:a", ":.:a", ":.eu:a:b")] == ["", ".eu", "", ".eu"]
    address = {"name": "Address", "subject": "address", "version": 1}
    found = filled(told(":.eu:address", 1, 1), told(":.eu:person", 1, 2, TEXT, references=[address]))
    person = found.versions(":.eu:person")[1]
    text = found.text(":.eu:person", person)
    assert not isinstance(text, str)
    assert text.references == (("Address", INT),)
    assert found.subjects() == []
    assert found.subjects(".eu") == [":.eu:address", ":.eu:person"]


def test_references_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = {"name": "A", "subject": "a", "version": 1}
    found = filled(told("a", 1, 1, references=[loop]))
    assert found.text("a", found.versions("a")[1]) == "its references to a are endless"
    monkeypatch.setattr(module, "MAX_REFERENCES", 1)
    many = [{"name": name, "subject": "b", "version": 1} for name in "xyz"]
    found = filled(told("b", 1, 1), told("c", 1, 2, references=many))
    assert found.text("c", found.versions("c")[1]) == "its references to b are endless"


def test_rules_of_a_topic() -> None:
    found = filled(told("s", 1, 11), told("s", 2, 12, TEXT), told("orders-key", 1, 13))
    settings = {"moldau.value.schema": "s", "confluent.key.schema.validation": "true"}
    rules = rules_for("orders", LogConfig.of(settings), found)
    (value,), (key,) = rules.value, rules.key
    assert (value.framing, value.ids, value.newest) == (Framing.OPTIONAL, (11, 12), 12)
    assert (key.framing, key.ids, key.schemas) == (Framing.REQUIRED, (13,), ())
    with pytest.raises(UnknownSubject, match="Subject s has no version 3; register it, or change the topic"):
        rules_for("orders", LogConfig.of({"moldau.value.schema": "s@3"}), found)
    with pytest.raises(UnknownSubject, match="Subject none has no schema; register one"):
        rules_for("orders", LogConfig.of({"moldau.value.schema": "none@latest"}), found)


def test_a_schema_that_cannot_be_read_has_no_record_name() -> None:
    found = filled(told("Any", 1, 1, '{"type": "nothing"}'))
    settings = {
        "confluent.value.schema.validation": "true",
        "confluent.value.subject.name.strategy": "RecordNameStrategy",
    }
    (value,) = rules_for("orders", LogConfig.of(settings), found).value
    assert value.ids == ()
