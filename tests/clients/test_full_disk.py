"""Disks that are full, and disks that fail, under a real broker: who is refused, who goes on, and what is told."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from moldau.base.errors import WireError
from support.brokers.processes import BrokerProcess, broker_environment
from support.clients import confluent
from support.clients.raw import RawClient
from support.eventually import eventually
from support.log.batches import plain_values

PATIENCE = 60


def values(bootstrap: str, topic: str, partition: int = 0) -> list[bytes | None]:
    found: list[bytes | None] = []
    with RawClient(bootstrap) as client:
        end = client.list_offset(topic, -1, partition).offset
        while len(found) < end:
            for each in client.fetched(topic, len(found), partition):
                found += plain_values(each)
    return found


def test_a_full_disk_refuses_writers_serves_readers_and_goes_on_once_there_is_room(
    small_disk: Path, tmp_path: Path
) -> None:
    own = BrokerProcess(tmp_path / "broker", {"log.flush.offset.checkpoint.interval.ms": 100})
    own.data = small_disk / "data"
    own.start()
    try:
        admin = confluent.admin(own.bootstrap)
        admin.create_topics([NewTopic("t", 1)])["t"].result(PATIENCE)
        settings = {"bootstrap.servers": own.bootstrap, "enable.idempotence": True, "message.timeout.ms": 120_000}
        producer = Producer({**settings, "batch.size": 20_000})
        expected = [b"%05d" % number + bytes(5_000) for number in range(500)]  # more than fits
        errors: list[object] = []
        producer.produce("t", expected[0])
        assert producer.flush(PATIENCE) == 0
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - (1 << 20)))
        for value in expected[1:]:
            producer.produce("t", value, on_delivery=lambda error, _: errors.append(error) if error else None)
        eventually(
            lambda: producer.poll(0.05) >= 0 and "Disk full: t-0 is read-only" in own.log_text(), "the disk is full"
        )
        with RawClient(own.bootstrap) as client:  # readers go on
            assert plain_values(client.fetched("t", 0)[0])[0] == expected[0]
        consumer = Consumer({"bootstrap.servers": own.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        created = admin.create_topics([NewTopic("u", 3)])["u"]
        ballast.unlink()
        assert producer.flush(PATIENCE) == 0
        assert not errors
        assert values(own.bootstrap, "t") == expected
        eventually(lambda: "data accepts writes again" in own.log_text(), "the log says that it is over")
        assert own.log_text().count("t-0 is read-only until space is freed") <= 1, "once, not for each refused write"
        refused = created.exception(PATIENCE)
        if refused is not None:  # the store had no room for it: the client is told, and comes again
            assert isinstance(refused, KafkaException)
            assert refused.args[0].code() == WireError.KAFKA_STORAGE_ERROR
            admin.create_topics([NewTopic("u", 3)])["u"].result(PATIENCE)
        eventually(lambda: writable(own.bootstrap, "u"), "u is writable")
        consumer.subscribe(["t"])
        eventually(lambda: consumer.poll(0.2) is not None, "the group reads")
        consumer.commit(asynchronous=False)  # the coordinator goes on as well
        consumer.close()
    finally:
        own.close()
    own.start()
    try:
        assert values(own.bootstrap, "t") == expected
    finally:
        own.close()


@pytest.fixture
def full_broker(small_disk: Path, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with the topics `t` and `u` on a disk without a free byte, to which a producer keeps writing."""
    own = BrokerProcess(
        tmp_path / "broker", {"log.retention.check.interval.ms": 200, "auto.create.topics.enable": "false"}
    )
    own.data = small_disk / "data"
    own.start()
    admin = confluent.admin(own.bootstrap)
    config = {"segment.bytes": 1 << 20, "file.delete.delay.ms": 100}
    for created in admin.create_topics([NewTopic("t", 1, config=config), NewTopic("u", 1, config=config)]).values():
        created.result(PATIENCE)
    stopped = threading.Event()
    writer = threading.Thread(target=keep_writing, args=(own.bootstrap, stopped))
    try:
        assert write(own.bootstrap, "t", 0, bytes(900_000)) is None
        assert write(own.bootstrap, "t", 0, bytes(900_000)) is None
        with open(small_disk / "ballast", "wb", buffering=0) as ballast, suppress(OSError):
            while ballast.write(bytes(4096)):
                pass
        writer.start()
        eventually(lambda: "Disk full: " in own.log_text(), "the disk is full")
        yield own
    finally:
        stopped.set()
        writer.join()
        own.close()


def keep_writing(bootstrap: str, stopped: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 500, "retry.backoff.ms": 1})
    while not stopped.is_set():
        producer.produce("u", bytes(50_000))
        producer.poll(0.02)
    producer.purge()


def test_a_topic_can_be_deleted_on_a_full_disk(full_broker: BrokerProcess) -> None:
    admin = confluent.admin(full_broker.bootstrap)
    admin.delete_topics(["t"])["t"].result(PATIENCE)
    eventually(lambda: write(full_broker.bootstrap, "u", 0) is None, "there is room again")


def test_retention_can_be_lowered_on_a_full_disk(full_broker: BrokerProcess) -> None:
    admin = confluent.admin(full_broker.bootstrap)
    lower = ConfigEntry("retention.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[lower])
    admin.incremental_alter_configs([topic])[topic].result(PATIENCE)
    eventually(lambda: write(full_broker.bootstrap, "u", 0) is None, "there is room again")


def test_retention_of_all_topics_can_be_lowered_on_a_full_disk(full_broker: BrokerProcess) -> None:
    admin = confluent.admin(full_broker.bootstrap)
    lower = ConfigEntry("log.retention.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[lower])
    admin.incremental_alter_configs([broker])[broker].result(PATIENCE)
    eventually(lambda: write(full_broker.bootstrap, "u", 0) is None, "there is room again")


def test_records_can_be_deleted_on_a_full_disk(full_broker: BrokerProcess) -> None:
    admin = confluent.admin(full_broker.bootstrap)
    [deleted] = admin.delete_records([TopicPartition("t", 0, 1)]).values()
    assert deleted.result(PATIENCE).low_watermark == 1
    eventually(lambda: write(full_broker.bootstrap, "u", 0) is None, "there is room again")


def test_a_full_disk_takes_no_new_topics_and_says_what_to_do(full_broker: BrokerProcess) -> None:
    admin = confluent.admin(full_broker.bootstrap)
    refused: KafkaException | None = None
    for number in range(100):  # until nothing is left of what the store had already
        refused = admin.create_topics([NewTopic(f"new-{number}", 10)])[f"new-{number}"].exception(PATIENCE)
        if refused is not None:
            break
    assert isinstance(refused, KafkaException)
    assert refused.args[0].code() == WireError.KAFKA_STORAGE_ERROR
    assert "Disk full" in refused.args[0].str()
    assert "Delete topics or lower retention.bytes" in refused.args[0].str()
    admin.delete_topics(["t"])["t"].result(PATIENCE)  # the reserve is still there


def test_a_broker_that_starts_on_a_full_disk_can_delete_topics(full_broker: BrokerProcess) -> None:
    full_broker.kill()
    full_broker.start()
    admin = confluent.admin(full_broker.bootstrap)
    admin.delete_topics(["t"])["t"].result(PATIENCE)
    eventually(lambda: write(full_broker.bootstrap, "u", 0) is None, "there is room again")


def writable(bootstrap: str, topic: str) -> bool:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 2_000})
    failed: list[object] = []
    for partition in range(3):
        producer.produce(topic, b"v", partition=partition, on_delivery=lambda error, _: failed.append(error))
    return producer.flush(PATIENCE) == 0 and failed == [None] * 3


FAILING = """
import errno, os, sqlite3, sys
from moldau.log import flush
from moldau.store.sqlite import SqliteStore
from moldau.testing import serve

real_sync, real_transact, broken = flush._sync, SqliteStore._transact, sys.argv.pop(1)

def fails(path):
    return path.startswith(broken) and os.path.exists(broken + ".broken")

def sync(fd):
    if fails(os.readlink(f"/proc/self/fd/{fd}")):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    real_sync(fd)

def transact(store, ops):
    if fails(str(store._path)):
        raise sqlite3.OperationalError("disk I/O error")
    return real_transact(store, ops)

flush._sync, SqliteStore._transact = sync, transact
serve.main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the disk that fails is told by /proc: run it on Linux")
@pytest.mark.parametrize("failing", ["one", "two"])  # the first one has the metadata store as well
def test_a_directory_that_fails_takes_its_partitions_alone(tmp_path: Path, failing: str) -> None:
    directories = {name: tmp_path / name for name in ("one", "two")}
    broken = directories.pop(failing)
    [working] = directories.values()
    log_dirs = f"log.dirs={tmp_path / 'one'},{tmp_path / 'two'}"
    arguments = [log_dirs, "listeners=PLAINTEXT://127.0.0.1:0", "log.flush.interval.messages=1"]
    command = [sys.executable, "-c", FAILING, str(broken), *arguments]
    with open(tmp_path / "log", "wb") as log:
        pipe = subprocess.PIPE  # the broker of a test ends with its input
        process = subprocess.Popen(command, env=broker_environment(), stdin=pipe, stdout=pipe, stderr=log)
    try:
        assert process.stdout is not None
        bootstrap = process.stdout.readline().split()[1].decode()
        admin = confluent.admin(bootstrap)
        admin.create_topics([NewTopic("t", 4)])["t"].result(PATIENCE)
        assert all(write(bootstrap, "t", partition) is None for partition in range(4))
        with RawClient(bootstrap) as client:
            homes = {each.log_dir: each.topics[0].partitions for each in client.log_dirs()}
        there = [row.partition_index for row in homes[str(broken)]]
        here = [row.partition_index for row in homes[str(working)]]
        assert len(there) == len(here) == 2
        Path(f"{broken}.broken").touch()
        assert write(bootstrap, "t", there[0]) is not None
        with RawClient(bootstrap) as client:
            codes = {each.log_dir: (each.error_code, len(each.topics)) for each in client.log_dirs()}
            assert codes == {str(working): (0, 1), str(broken): (WireError.KAFKA_STORAGE_ERROR, 0)}
        partitions = admin.list_topics("t", timeout=PATIENCE).topics["t"].partitions
        assert {index for index, each in partitions.items() if each.leader == -1} == set(there)
        assert all(write(bootstrap, "t", partition) is None for partition in here)
        told = [line for line in (tmp_path / "log").read_text().splitlines() if "is offline" in line]
        assert len(told) == 1
        assert str(broken) in told[0]
        refused = admin.create_topics([NewTopic("u", 1)])["u"].exception(PATIENCE)
        if failing == "one":
            assert isinstance(refused, KafkaException)
            assert refused.args[0].code() == WireError.KAFKA_STORAGE_ERROR
            Path(f"{broken}.broken").unlink()
            admin.create_topics([NewTopic("u", 1)])["u"].result(PATIENCE)
        else:
            assert refused is None
        assert write(bootstrap, "u", 0) is None, "new partitions go where the disk works"
        assert write(bootstrap, "t", there[0]) is not None, "what failed is not trusted before the next start"
    finally:
        process.terminate()
        process.wait(PATIENCE)
    assert process.returncode == 0
    assert [(path / ".kafka_cleanshutdown").exists() for path in (working, broken)] == [True, False]


def write(bootstrap: str, topic: str, partition: int, value: bytes = b"v") -> object:
    """None, or the error that a producer without much patience gets."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 3_000})
    outcome: list[object] = []
    producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(PATIENCE)
    return outcome[0]
