"""Checks of batches as workers make them, without a process: verdicts, dead letters, bounds."""

import json
from typing import Any

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.log.settings import LogConfig
from moldau.replication import inspection, record_checks
from moldau.replication.record_checks import BatchChecks, Checked
from moldau.replication.record_rules import Framing, Mode, PackedRules, RecordRules, SchemaText, SideRule, Storage
from moldau.replication.worker_frames import LENGTHS, Request, pack, pack_response, read_response
from moldau.wire.batch import read_header
from moldau.wire.records import decode_records
from support.log.batches import TRANSACTIONAL, Producer, Written, batch

SCHEMA = SchemaText("JSON", json.dumps({"type": "integer", "minimum": 0}))
LIMIT = 1 << 24


def rule(mode: Mode, framing: Framing = Framing.IGNORED, **more: Any) -> SideRule:
    return SideRule("the schema of the topic", mode, framing, **{"ids": (0,), "schemas": ((0, SCHEMA),), **more})


def checks(*value: SideRule, config: LogConfig = LogConfig(), key: tuple[SideRule, ...] = ()) -> BatchChecks:  # noqa: B008 - frozen
    rules = RecordRules("orders", Storage.of(config), 1 << 20, key, value)
    return BatchChecks(RecordRules.unpacked(PackedRules.of(rules).packed))


def values(data: bytes) -> list[bytes | None]:
    return [record.value for record in decode_records(data, limit=LIMIT)]


def test_a_batch_that_conforms_stays_as_it_is() -> None:
    assert checks(rule(Mode.REJECT)).check(batch(Written(b"1"), Written(b"2")), 0) == Checked()


def test_to_reject_comes_before_all_else() -> None:
    both = checks(rule(Mode.REJECT), key=(rule(Mode.DEAD_LETTER),))
    checked = both.check(batch(Written(b"-1", b"1"), Written(b"1", b"-1")), 0)
    assert isinstance(checked.refusal, Refusal)
    assert [place for place, _ in checked.refusal.records] == [0]
    assert not checked.letters


def test_what_is_left_keeps_the_state_of_its_producer() -> None:
    given = batch(
        *[
            Written(value, b"k", (("h", b"1"),), timestamp_delta=each)
            for each, value in enumerate((b"-1", b"2", b"x", b"4"))
        ],
        producer=Producer(7, 3),
        sequence=2**31 - 2,
        timestamp=1000,
        attributes=TRANSACTIONAL,
    )
    checked = checks(rule(Mode.DEAD_LETTER)).check(given, 5)
    assert checked.batch is not None
    before, after = read_header(given), read_header(checked.batch)
    same = ("producer_id", "producer_epoch", "base_sequence", "last_offset_delta", "attributes", "max_timestamp")
    assert {name: getattr(after, name) for name in same} == {name: getattr(before, name) for name in same}
    assert (after.record_count, after.base_timestamp) == (2, 1001)
    assert [(each.offset, each.timestamp, each.value) for each in decode_records(checked.batch, limit=LIMIT)] == [
        (1, 1001, b"2"),
        (3, 1003, b"4"),
    ]
    (letters,) = checked.letters
    assert not read_header(letters).attributes
    assert read_header(letters).producer_id == -1
    first, second = decode_records(letters, limit=LIMIT)
    assert (first.value, first.key, first.timestamp, first.headers[0]) == (b"-1", b"k", 1000, ("h", b"1"))
    assert dict(first.headers)["moldau.producer"] == b"7/3/2147483646"
    assert dict(second.headers)["moldau.producer"] == b"7/3/0"  # sequences wrap
    assert dict(first.headers)["moldau.partition"] == b"5"


def test_an_empty_batch_keeps_its_greatest_timestamp() -> None:
    checked = checks(rule(Mode.DEAD_LETTER)).check(batch(Written(b"x"), timestamp=77), 0)
    assert checked.batch is not None
    header = read_header(checked.batch)
    assert (header.record_count, header.last_offset_delta, header.max_timestamp) == (0, 0, 77)


def test_dead_letters_come_in_batches_that_their_topic_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_checks, "LETTERS_BYTES", 1000)
    checked = checks(rule(Mode.DEAD_LETTER)).check(batch(*[Written(b"x" * 100)] * 20), 0)
    assert len(checked.letters) > 2
    assert sum(len(values(each)) for each in checked.letters) == 20
    rules = RecordRules("orders", Storage.of(LogConfig()), 500, (), (rule(Mode.DEAD_LETTER),))
    too_large = BatchChecks(rules).check(batch(Written(b"1"), Written(b"x" * 2000)), 0)
    assert isinstance(too_large.refusal, Refusal)
    ((place, reason),) = too_large.refusal.records
    assert place == 1
    assert reason.endswith("is too large for the dead letter topic.")


def test_reasons_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "MAX_RECORD_ERRORS", 5)
    long = SchemaText("JSON", json.dumps({"enum": ["y" * 5000]}))
    checked = checks(rule(Mode.REJECT, schemas=((0, long),))).check(batch(*[Written(b'"x"')] * 9), 0)
    assert isinstance(checked.refusal, Refusal)
    assert len(checked.refusal.records) == 5
    assert all(len(reason) <= 320 for _, reason in checked.refusal.records)


def test_corrupt_records_are_the_producers_error() -> None:
    checked = checks(rule(Mode.REJECT)).check(batch(Written(b"1"), count=2, last_offset_delta=1), 0)
    assert isinstance(checked.refusal, Refusal)
    assert checked.refusal.error is WireError.CORRUPT_MESSAGE


def test_a_schema_that_cannot_be_used_fails_its_records() -> None:
    unusable = rule(Mode.REJECT, schemas=((0, SchemaText("AVRO", '{"type": "nothing"}')),))
    checked = checks(unusable).check(batch(Written(b"1")), 0)
    assert isinstance(checked.refusal, Refusal)
    assert checked.refusal.message.startswith(
        "The batch has 1 invalid record. Record 0: Value cannot be checked: the schema of the topic cannot be used: "
    )


@pytest.mark.parametrize(
    "payload", [b"\0", b"\0\0\0\0\x05", b"\0\0\0\0\x05\xff\xff\xff\xff\xff\xff", b"\0\0\0\0\x05\x80"]
)
def test_frames_of_protobuf_that_end_too_early(payload: bytes) -> None:
    proto = SchemaText("PROTOBUF", 'syntax = "proto3"; message A { int32 id = 1; }')
    framed = rule(Mode.REJECT, Framing.OPTIONAL, ids=(5,), schemas=((5, proto),), newest=5)
    assert checks(framed).check(batch(Written(payload)), 0).refusal is not None


def test_frames_come_back_as_they_went() -> None:
    refusal = Refusal(WireError.INVALID_RECORD, "wrong", ((1, "a"), (2, "b")))
    for checked in (Checked(), Checked(refusal), Checked(None, b"kept", (b"one", b"letters"), 2, 3, "first")):
        lengths, head, *bodies = pack_response(checked)
        body = b"".join(bodies)
        assert LENGTHS.unpack(lengths) == (len(head), len(body))
        assert read_response(head, body) == checked
    request = Request("name", 3, "rules", True)
    assert Request.read(pack(request, b"batch")[1]) == request
