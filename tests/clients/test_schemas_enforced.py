"""Schemas that topics declare: what producers are told, and what is written. Without a registry."""

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from support.brokers.processes import BrokerProcess
from support.clients import confluent
from support.clients.cli import fail, runner, succeed
from support.clients.raw import RawClient
from support.eventually import eventually
from support.guides import blocks
from support.log.batches import CODECS, Written, batch

INVALID_RECORD, REQUEST_TIMED_OUT, INVALID_CONFIG = 87, 7, 40
ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer", "minimum": 0}, "note": {"type": "string", "pattern": "^(a+)+$"}},
    "required": ["id"],
}
SCHEMA = {"moldau.value.schema": json.dumps(ORDER)}
DEAD_LETTER = SCHEMA | {"moldau.value.schema.mode": "dead-letter"}
GOOD, BAD = b'{"id": 1}', b'{"id": -1}'
BELOW = "Value does not conform to the schema of the topic: #/id: -1 is less than the minimum of 0"


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of its own: its workers are killed."""
    process = BrokerProcess(tmp_path_factory.mktemp("enforcing"), {"moldau.inspection.timeout.ms": 1000}).start()
    yield process
    process.close()


@pytest.fixture
def client(enforcing: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(enforcing.bootstrap) as connection:
        yield connection


@pytest.fixture
def orders(client: RawClient, request: pytest.FixtureRequest) -> str:
    """A topic whose values are orders, or with the settings that the test is parametrized with."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    client.create_topic(name, 1, getattr(request, "param", SCHEMA))
    return name


def produced(client: RawClient, topic: str, *values: bytes | None, key: bytes | None = None, **options: Any) -> Any:
    return client.produce(topic, batch(*[Written(value, key) for value in values], **options))


def refused(answer: Any) -> dict[int, str]:
    assert answer.error_code == INVALID_RECORD, (answer.error_code, answer.error_message)
    return {each.batch_index: each.batch_index_error_message for each in answer.record_errors}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_record_refuses_its_batch(client: RawClient, orders: str, place: int, codec: str) -> None:
    given = [GOOD] * 3
    given[place] = BAD
    answer = produced(client, orders, *given, codec=CODECS[codec])
    assert refused(answer) == {place: BELOW}
    assert answer.error_message == f"The batch has 1 invalid record. Record {place}: {BELOW}"
    assert client.fetched(orders) == []
    assert produced(client, orders, GOOD, codec=CODECS[codec]).base_offset == 0


@pytest.mark.parametrize("orders", [DEAD_LETTER], indirect=True)
def test_dead_letters_leave_gaps_and_the_rest_is_accepted(
    client: RawClient, orders: str, enforcing: BrokerProcess
) -> None:
    producer = client.new_producer()
    first = produced(client, orders, BAD, GOOD, BAD, producer=producer, sequence=0)
    assert (first.error_code, first.base_offset) == (0, 0)
    again = produced(client, orders, BAD, GOOD, BAD, producer=producer, sequence=0)
    assert (again.error_code, again.base_offset) == (0, 0)
    following = produced(client, orders, GOOD, producer=producer, sequence=3)
    assert (following.error_code, following.base_offset) == (0, 3)
    (thinned, whole) = client.fetched(orders)
    assert (thinned.base_sequence, thinned.last_offset_delta, thinned.count) == (0, 2, 1)
    assert (whole.base_offset, whole.base_sequence) == (3, 3)
    accepted = confluent.read(enforcing.bootstrap, orders)
    assert [record.offset for record in accepted] == [1, 3]
    letters = confluent.read(enforcing.bootstrap, f"{orders}.dead")
    assert [record.value for record in letters] == [BAD, BAD]  # the retry wrote none
    told = dict(letters[1].headers)
    assert told["moldau.reason"] == BELOW.encode()
    assert (told["moldau.topic"], told["moldau.partition"]) == (orders.encode(), b"0")
    assert told["moldau.producer"] == b"%d/%d/2" % (producer.id, producer.epoch)


@pytest.mark.parametrize("orders", [DEAD_LETTER], indirect=True)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_batch_of_dead_letters_alone_is_an_empty_one(
    client: RawClient, orders: str, enforcing: BrokerProcess, codec: str
) -> None:
    producer = client.new_producer()
    assert produced(client, orders, BAD, BAD, producer=producer, sequence=0, codec=CODECS[codec]).base_offset == 0
    assert produced(client, orders, GOOD, producer=producer, sequence=2, codec=CODECS[codec]).base_offset == 2
    empty, _ = client.fetched(orders)
    assert (empty.count, empty.last_offset_delta) == (0, 1)
    assert [record.offset for record in confluent.read(enforcing.bootstrap, orders)] == [2]
    assert len(confluent.read(enforcing.bootstrap, f"{orders}.dead")) == 2


@pytest.mark.parametrize("orders", [SCHEMA | {"moldau.value.schema.mode": "warn"}], indirect=True)
def test_warnings_are_counted_and_told_once_a_minute(client: RawClient, orders: str, enforcing: BrokerProcess) -> None:
    for _ in range(5):
        assert produced(client, orders, BAD, GOOD, b"{").error_code == 0
    lines = [line for line in enforcing.log_text().splitlines() if f"{orders}-0: " in line]
    assert len(lines) == 1
    assert (
        f"2 records that do not conform were accepted, 0 were set aside as dead letters. Record 0: {BELOW}" in lines[0]
    )
    assert len(confluent.read(enforcing.bootstrap, orders)) == 15


def test_keys_have_a_schema_of_their_own(client: RawClient) -> None:
    client.create_topic("keyed", 1, {"moldau.key.schema": '{"type": "integer"}'})
    assert produced(client, "keyed", b"anything", key=b"7").error_code == 0
    assert refused(produced(client, "keyed", b"anything", key=b"x")).keys() == {0}
    missing = "Key is missing; the schema of the topic asks for one."
    assert refused(produced(client, "keyed", b"anything")) == {0: missing}


def test_null_values_are_for_compacted_topics(client: RawClient, orders: str) -> None:
    assert refused(produced(client, orders, None)) == {0: "Value is missing; the schema of the topic asks for one."}
    client.create_topic("compacted", 1, SCHEMA | {"cleanup.policy": "compact", "compression.type": "gzip"})
    assert produced(client, "compacted", GOOD, None, key=b"k").error_code == 0
    assert refused(produced(client, "compacted", BAD, key=b"k")) == {0: BELOW}
    assert refused(produced(client, "compacted", GOOD)) == {0: "A compacted topic takes no record without a key."}
    (stored,) = client.fetched("compacted")
    assert stored.codec == CODECS["gzip"]


def test_a_batch_that_is_written_is_no_longer_judged(client: RawClient, orders: str, enforcing: BrokerProcess) -> None:
    """A retry whose first answer was lost, after the schema changed."""
    producer = client.new_producer()
    assert produced(client, orders, GOOD, producer=producer, sequence=0).base_offset == 0
    alter(enforcing, orders, json.dumps({"type": "object", "required": ["total"]}))
    assert produced(client, orders, GOOD, producer=producer, sequence=0).base_offset == 0
    wrong = 'Value does not conform to the schema of the topic: #: "total" is a required property'
    assert refused(produced(client, orders, GOOD, producer=producer, sequence=1)) == {0: wrong}
    out_of_order = produced(client, orders, GOOD, producer=producer, sequence=9)
    assert out_of_order.error_code == 45
    alter(enforcing, orders, "")
    assert produced(client, orders, b"anything", producer=producer, sequence=1).base_offset == 1


def alter(broker: BrokerProcess, topic: str, schema: str, setting: str = "moldau.value.schema") -> None:
    entry = ConfigEntry(setting, schema, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = confluent.admin(broker.bootstrap)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("moldau.value.schema", '{"type": "objekt"}', "moldau.value.schema is not a JSON Schema: "),
        ("moldau.value.schema", '{"type": ', "moldau.value.schema is not a JSON Schema: "),
        ("moldau.key.schema", "orders@0", "moldau.key.schema must be a subject, subject@version with a version"),
        ("moldau.key.schema", "orders@newest", "moldau.key.schema must be a subject, subject@version with a version"),
        ("moldau.value.schema", "@1", "moldau.value.schema must be a subject, subject@version, subject@latest"),
        ("moldau.value.schema.mode", "refuse", "moldau.value.schema.mode must be one of reject, dead-letter, warn"),
        ("confluent.value.subject.name.strategy", "com.example.Own", "must be one of TopicNameStrategy, "),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    client: RawClient, orders: str, enforcing: BrokerProcess, setting: str, value: str, sentence: str
) -> None:
    with pytest.raises(Exception, match="INVALID_CONFIG") as refusal:
        alter(enforcing, orders, value, setting)
    assert sentence in str(refusal.value)
    with pytest.raises(AssertionError) as creation:
        client.create_topic("never", 1, {setting: value})
    assert creation.value.args[0][0] == INVALID_CONFIG
    assert sentence in creation.value.args[0][1]


HOSTILE = {
    "deep": b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a giant number": b'{"id": ' + b"9" * 500_000 + b"}",
    "a giant exponent": b'{"id": 1e999999999}',
    "not UTF-8": b'{"id": 1, "note": "\xff\xfe"}',
    "half a pair": b'{"id": 1, "note": "\\ud800"}',
    "NaN": b'{"id": NaN}',
    "a regular expression that backtracks": b'{"id": 1, "note": "' + b"a" * 5_000 + b'!"}',
    "nothing": b"",
    "two": b"{}{}",
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_records_are_one_records_own(client: RawClient, orders: str, hostile: bytes) -> None:
    assert refused(produced(client, orders, GOOD, hostile, GOOD)).keys() == {1}
    assert produced(client, orders, GOOD).error_code == 0


def workers(broker: BrokerProcess) -> list[psutil.Process]:
    children = psutil.Process(broker.pid).children()
    return [child for child in children if "moldau.replication.record_worker_main" in child.cmdline()]


def test_a_worker_that_was_killed_is_replaced(client: RawClient, orders: str, enforcing: BrokerProcess) -> None:
    assert produced(client, orders, GOOD).error_code == 0
    for worker in workers(enforcing):
        worker.kill()
        worker.wait(30)
    assert produced(client, orders, GOOD).error_code == 0
    assert produced(client, orders, GOOD).base_offset == 2


def test_a_worker_that_hangs_costs_one_retriable_answer(
    client: RawClient, orders: str, enforcing: BrokerProcess
) -> None:
    assert produced(client, orders, GOOD).error_code == 0
    for worker in workers(enforcing):
        worker.suspend()
    late = produced(client, orders, b'{"id": 77}')
    assert late.error_code == REQUEST_TIMED_OUT
    assert late.error_message == "The records could not be checked, as the check took longer than 1 s; retry."
    eventually(lambda: produced(client, orders, GOOD).error_code == 0, "a new worker checks")
    assert all(worker.status() != psutil.STATUS_STOPPED for worker in workers(enforcing))


def test_a_batch_that_costs_workers_again_and_again_is_refused(
    client: RawClient, orders: str, enforcing: BrokerProcess
) -> None:
    data, answers = batch(Written(GOOD)), []
    for _ in range(2):
        assert produced(client, orders, GOOD).error_code == 0
        for worker in workers(enforcing):
            worker.suspend()
        answers.append(client.produce(orders, data))
    assert [answer.error_code for answer in answers] == [REQUEST_TIMED_OUT, INVALID_RECORD]
    assert answers[1].error_message == "The records cannot be checked: the check took longer than 1 s, 2 times."


# ── the command line ──


def test_the_guide(enforcing: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/enforcement.md: its first commands, word by word; the record does not conform."""
    (tmp_path / "order.json").write_text(json.dumps({"properties": {"total": {"type": "number"}}}))
    monkeypatch.chdir(tmp_path)
    moldau = runner(enforcing.bootstrap)
    create, produce = next(iter(blocks("docs/enforcement.md"))).text.splitlines()
    succeed(moldau(*create.split()[1:]))
    record, command = re.fullmatch(r"echo '(.+)' \| moldau (.+)", produce).groups()  # type: ignore[union-attr]
    fail(moldau(*command.split(), stdin=record), 1, "record 1: Value does not conform", "#/total")


def test_topics_are_created_with_a_schema_and_produce_tells_why(enforcing: BrokerProcess, tmp_path: Path) -> None:
    moldau, name = runner(enforcing.bootstrap), f"orders-{uuid.uuid4().hex[:8]}"
    file = tmp_path / "order.json"
    file.write_text(json.dumps(ORDER, indent=4))
    succeed(moldau("topic", "create", name, "--schema", str(file)))
    assert "moldau.value.schema" in succeed(moldau("topic", "describe", name))
    lines = "\n".join(['{"id": 1}'] * 2 + ['{"id": -1}'] + ['{"id": 2}'] * 2)
    fail(moldau("produce", name, stdin=lines), 1, "records failed: record 3: Value does not conform", "#/id: -1")
    succeed(moldau("produce", name, stdin='{"id": 1}'))
    file.write_text('{"type": "string"}')
    succeed(moldau("topic", "alter", name, "--schema", str(file)))
    succeed(moldau("produce", name, stdin='"text"'))
    succeed(moldau("topic", "alter", name, "--schema", "orders-value@2"))
    fail(moldau("produce", name, stdin='"text"'), 1, "Subject orders-value has no schema; register one")


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("order.avsc", "--schema takes a JSON Schema or a subject, not .avsc"),
        ("missing.json", "there is no file "),
        ("text", "is not JSON: "),
    ],
)
def test_what_cannot_be_a_schema_is_refused_before_it_is_sent(
    enforcing: BrokerProcess, tmp_path: Path, schema: str, sentence: str
) -> None:
    (tmp_path / "text").write_text("# not JSON")
    moldau = runner(enforcing.bootstrap)
    fail(moldau("topic", "create", "never", "--schema", str(tmp_path / schema)), 2, sentence)
