"""Topics with a schema and real clients: whose records fail, what is written, and how producers go on."""

import asyncio
import json
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaError, Message, Producer

from support.brokers.processes import AnyBroker
from support.clients import confluent
from support.clients.go import WITHOUT_GO
from support.clients.go import client as go_client
from support.clients.raw import RawClient
from support.kafka import jvm
from support.log.batches import CODECS

ORDER = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 0}}, "required": ["id"]}
SCHEMA = {"moldau.value.schema": json.dumps(ORDER)}
DEAD_LETTER = SCHEMA | {"moldau.value.schema.mode": "dead-letter"}
GOOD, BAD = '{"id":1}', '{"id":-1}'
BELOW = "Value does not conform to the schema of the topic: #/id: -1 is less than the minimum of 0"
BATCHES = [[GOOD, GOOD], [BAD, GOOD, GOOD], [GOOD, BAD, GOOD], [GOOD, GOOD, BAD], [BAD], [GOOD, GOOD]]
JAVA = Path(__file__).parent / "java" / "Batches.java"

Batches = list[list[str]]
Told = list[str]  # of each record its offset, or the error


@pytest.fixture(autouse=True)
def moldau_only(on_apache: bool) -> None:
    if on_apache:
        pytest.skip("Apache Kafka enforces no schemas")


@pytest.fixture
def new_topic(broker: AnyBroker) -> Callable[[dict[str, str]], str]:
    def make(configs: dict[str, str]) -> str:
        name = f"orders-{uuid.uuid4().hex[:8]}"
        with RawClient(broker.bootstrap) as client:
            client.create_topic(name, 1, configs)
        return name

    return make


def send_by_librdkafka(broker: AnyBroker, topic: str, codec: str, batches: Batches) -> Told:
    settings = {"compression.type": codec, "linger.ms": 1000, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    told: Told = []
    for batch in batches:
        for value in batch:
            place = len(told)
            told.append("")

            def delivered(error: KafkaError | None, message: Message, place: int = place) -> None:
                told[place] = str(message.offset()) if error is None else error.name()

            producer.produce(topic, value, on_delivery=delivered)
        assert producer.flush(60) == 0
    return told


def send_by_aiokafka(broker: AnyBroker, topic: str, codec: str, batches: Batches) -> Told:
    async def send() -> Told:
        told: Told = []
        kind = None if codec == "none" else codec
        settings = {"compression_type": kind, "linger_ms": 200, "enable_idempotence": True}
        for batch in batches:  # a producer each: aiokafka's is unusable once a batch of an idempotent one fails
            async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
                sent = [await producer.send(topic, value.encode()) for value in batch]
                for outcome in await asyncio.gather(*sent, return_exceptions=True):
                    told.append(type(outcome).__name__ if isinstance(outcome, AiokafkaError) else str(outcome.offset))  # type: ignore[union-attr]
        return told

    return asyncio.run(asyncio.wait_for(send(), 60))


@pytest.fixture(scope="session")
def java_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if jvm.classpath() is None:
        pytest.skip(jvm.why_missing())
    compiler = shutil.which("javac", path=str(Path(jvm.java() or "").parent)) or shutil.which("javac")
    if compiler is None:
        pytest.skip("javac is not installed; on Debian: apt-get install openjdk-17-jdk-headless")
    built = tmp_path_factory.mktemp("java")
    command = [compiler, "-cp", str(jvm.classpath()), "-d", str(built), str(JAVA)]
    subprocess.run(command, check=True, capture_output=True)
    return built


def send_by_java(program: Path, broker: AnyBroker, topic: str, codec: str, batches: Batches, id_: str = "-") -> Told:
    path = f"{program}:{jvm.classpath()}"
    command = [str(jvm.java()), *jvm.QUICK_START, "-cp", path, "Batches", broker.bootstrap, topic, codec, id_]
    done = subprocess.run([*command, *map("|".join, batches)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def check_refused(told: Told, batches: Batches) -> None:
    """Offsets for whole batches, in order and without gaps; failures for the others."""
    at = offset = 0
    for batch in batches:
        outcomes = told[at : at + len(batch)]
        at += len(batch)
        if BAD in batch:
            assert not any(outcome.isdigit() for outcome in outcomes), told
        else:
            assert outcomes == [str(offset + each) for each in range(len(batch))], told
            offset += len(batch)


def check_set_aside(broker: AnyBroker, topic: str, told: Told, batches: Batches) -> None:
    values = [value for batch in batches for value in batch]
    assert told == [str(offset) for offset in range(len(values))]
    accepted = confluent.read(broker.bootstrap, topic)
    assert [(each.offset, each.value) for each in accepted] == [
        (offset, value.encode()) for offset, value in enumerate(values) if value == GOOD
    ]
    letters = confluent.read(broker.bootstrap, f"{topic}.dead")
    assert [letter.value for letter in letters] == [BAD.encode()] * values.count(BAD)


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka(broker: AnyBroker, new_topic: Callable[[dict[str, str]], str], codec: str) -> None:
    told = send_by_librdkafka(broker, new_topic(SCHEMA), codec, BATCHES)
    check_refused(told, BATCHES)
    assert "INVALID_RECORD" in told
    aside = new_topic(DEAD_LETTER)
    check_set_aside(broker, aside, send_by_librdkafka(broker, aside, codec, BATCHES), BATCHES)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_aiokafka(broker: AnyBroker, new_topic: Callable[[dict[str, str]], str], codec: str) -> None:
    check_refused(send_by_aiokafka(broker, new_topic(SCHEMA), codec, BATCHES), BATCHES)
    aside = new_topic(DEAD_LETTER)
    check_set_aside(broker, aside, send_by_aiokafka(broker, aside, codec, BATCHES), BATCHES)


@WITHOUT_GO
@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_franz_go(go_program: Path, broker: AnyBroker, new_topic: Callable[[dict[str, str]], str], codec: str) -> None:
    batches = list(map("|".join, BATCHES))
    told = go_client(go_program, "batches", broker, new_topic(SCHEMA), codec, *batches)
    check_refused(told, BATCHES)
    assert "INVALID_RECORD" in told
    aside = new_topic(DEAD_LETTER)
    check_set_aside(broker, aside, go_client(go_program, "batches", broker, aside, codec, *batches), BATCHES)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_java(java_program: Path, broker: AnyBroker, new_topic: Callable[[dict[str, str]], str], codec: str) -> None:
    told = send_by_java(java_program, broker, new_topic(SCHEMA), codec, BATCHES)
    check_refused(told, BATCHES)
    assert f"InvalidRecordException: {BELOW}" in told  # it alone tells a record's own reason
    aside = new_topic(DEAD_LETTER)
    check_set_aside(broker, aside, send_by_java(java_program, broker, aside, codec, BATCHES), BATCHES)


def test_transactions_of_java(
    java_program: Path, broker: AnyBroker, new_topic: Callable[[dict[str, str]], str], short_waits: dict[str, int]
) -> None:
    topic, aside = new_topic(SCHEMA), new_topic(DEAD_LETTER)
    told = send_by_java(java_program, broker, topic, "none", BATCHES, f"java-{topic}")
    assert [outcome.isdigit() for outcome in told] == [value != BAD and BAD not in b for b in BATCHES for value in b]
    assert [each.value for each in confluent.read(broker.bootstrap, topic)] == [GOOD.encode()] * 4
    told = send_by_java(java_program, broker, aside, "none", BATCHES, f"java-{aside}")
    assert all(outcome.isdigit() for outcome in told)
    assert [each.value for each in confluent.read(broker.bootstrap, aside)] == [GOOD.encode()] * 10
    assert len(confluent.read(broker.bootstrap, f"{aside}.dead")) == 4


def test_transactions_of_librdkafka(broker: AnyBroker, new_topic: Callable[[dict[str, str]], str]) -> None:
    topic = new_topic(DEAD_LETTER)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"c-{topic}"})
    producer.init_transactions(60)
    for commits in (True, False, True):
        producer.begin_transaction()
        for value in (BAD, GOOD, BAD):
            producer.produce(topic, value)
        (producer.commit_transaction if commits else producer.abort_transaction)(60)
    assert [each.value for each in confluent.read(broker.bootstrap, topic)] == [GOOD.encode()] * 2
    letters = confluent.read(broker.bootstrap, f"{topic}.dead")
    assert {letter.value for letter in letters} == {BAD.encode()}
