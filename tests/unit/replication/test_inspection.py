"""Inspection of records: which of a refused batch are named, and how many."""

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.log.settings import LogConfig
from moldau.replication import inspection
from support.log.batches import Written, batch

COMPACTED = LogConfig(cleanup_policy=("compact",))
NOW = 1_700_000_000_000


def test_a_batch_with_millions_of_invalid_records_names_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "MAX_RECORD_ERRORS", 5)
    refusal = inspection.inspect(batch(*[Written(b"v")] * 20), COMPACTED)
    assert isinstance(refusal, Refusal)
    assert [place for place, _ in refusal.records] == [0, 1, 2, 3, 4]
    assert refusal.message.startswith("The batch has at least 5 invalid records. Record 0: ")
    assert refusal.message.count("Record ") == 3


def test_one_invalid_record() -> None:
    refusal = inspection.inspect(batch(Written(b"v", key=b"k"), Written(b"v")), COMPACTED)
    assert isinstance(refusal, Refusal)
    assert refusal.message == f"The batch has 1 invalid record. Record 1: {inspection.NO_KEY}"


def test_a_batch_whose_header_alone_is_wrong_keeps_its_refusal() -> None:
    wrong = Refusal(WireError.INVALID_TIMESTAMP, "by its header")
    assert inspection.blame(batch(Written(b"v"), timestamp=NOW), LogConfig(), NOW, wrong) is wrong
