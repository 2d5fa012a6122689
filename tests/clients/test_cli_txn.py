"""`moldau txn` as a user meets it: the real command against a real broker, with real transactions."""

import json
import time
import uuid
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from support.brokers.processes import CreateTopic, StartBroker
from support.clients.cli import Run, complete, fail, on_terminal, runner, succeed
from support.clients.raw import RawClient
from support.log import batches

HOUR_MS = 3_600_000


@pytest.fixture
def transactional_id() -> str:
    return f"cli-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def producer(bootstrap: str, transactional_id: str) -> Producer:
    """A producer that is ready for transactions."""
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
    made.init_transactions(30)
    return made


@pytest.fixture
def ongoing(producer: Producer, create_topic: CreateTopic) -> str:
    """A topic in whose two partitions the producer has written, in a transaction that is open."""
    name = create_topic(partitions=2)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(name, b"pending", partition=partition)
    assert producer.flush(30) == 0
    return name


def rows(moldau: Run, *arguments: str) -> list[dict[str, Any]]:
    return list(json.loads(succeed(moldau("txn", *arguments, "-o", "json"))))


class TestLooking:
    def test_an_open_transaction(self, moldau: Run, producer: Producer, ongoing: str, transactional_id: str) -> None:
        (listed,) = [row for row in rows(moldau, "list") if row["transactional_id"] == transactional_id]
        assert listed["state"] == "Ongoing"
        (found,) = rows(moldau, "describe", transactional_id)
        assert found["state"] == "Ongoing"
        assert (found["producer_id"], found["coordinator"]) == (listed["producer_id"], listed["coordinator"])
        partitions = sorted((row["topic"], row["partition"]) for row in found["partitions"])
        assert partitions == [(ongoing, 0), (ongoing, 1)]
        assert found["timeout_ms"] == 60_000
        assert 0 <= found["running_seconds"] < 600
        producers = rows(moldau, "producers", ongoing)
        assert [(row["partition"], row["producer_id"], row["start_offset"]) for row in producers] == [
            (0, listed["producer_id"], 0),
            (1, listed["producer_id"], 0),
        ]
        shown = succeed(moldau("txn", "describe", transactional_id))
        assert f"partitions {ongoing}:0,1" in shown
        producer.commit_transaction(30)
        (row,) = rows(moldau, "producers", ongoing, "-p", "1")
        assert row["start_offset"] is None
        assert "Complete" in succeed(moldau("txn", "list", "--pattern", transactional_id))

    def test_filters(self, moldau: Run, ongoing: str, transactional_id: str) -> None:
        def shows(*arguments: str) -> bool:
            return transactional_id in {row["transactional_id"] for row in rows(moldau, "list", *arguments)}

        (found,) = rows(moldau, "describe", transactional_id)
        assert shows("--state", "ongoing,empty")
        assert not shows("--state", "PrepareCommit", "--state", "Empty")
        assert shows("--producer-id", str(found["producer_id"]))
        assert not shows("--producer-id", str(found["producer_id"] + 1_000_000))
        assert shows("--longer-than", "0s")
        assert not shows("--longer-than", "1h")
        assert shows("--pattern", f"{transactional_id[:6]}.*")
        assert not shows("--pattern", "no-such-.*")
        assert "like that" in moldau("txn", "list", "--pattern", "no-such-.*").stderr

    def test_mistakes(self, moldau: Run, create_topic: CreateTopic) -> None:
        name = create_topic()
        fail(moldau("txn", "list", "--pattern", "("), 2, "regular expression")
        fail(moldau("txn", "describe", "cli-none"), 1, "no transactional id 'cli-none'", "moldau txn list")
        fail(moldau("txn", "producers", "cli-none"), 1, "no topic 'cli-none'")
        fail(moldau("txn", "producers", name, "-p", "5"), 1, "no partition 5")
        fail(moldau("txn", "producers", name, "--broker", "4711"), 1, "no broker 4711")
        fail(moldau("txn", "find-hanging", "--topic", "cli-none"), 1, "no topic 'cli-none'")
        fail(moldau("txn", "abort", "--transactional-id", "cli-none", "-y"), 1, "no transactional id 'cli-none'")
        where = ("--topic", name, "--partition", "0", "--yes")
        fail(moldau("txn", "abort", *where, "--start-offset", "5"), 1, "no open transaction", "moldau txn producers")
        fail(moldau("txn", "list", "-b", "127.0.0.1:1"), 1, "127.0.0.1:1", "moldau up")
        fail(moldau("txn", "list", "-X", "security.protocol=ssl"), 1, "ssl")

    def test_the_shell_completes_transactional_ids(self, bootstrap: str, ongoing: str, transactional_id: str) -> None:
        assert transactional_id in complete(bootstrap, f"moldau txn describe {transactional_id[:8]}")


class TestAborting:
    def test_by_transactional_id(self, moldau: Run, producer: Producer, ongoing: str, transactional_id: str) -> None:
        told = succeed(moldau("txn", "abort", "--transactional-id", transactional_id, "--yes"))
        assert told == f"Aborted the transaction of transactional id {transactional_id}.\n"
        with pytest.raises(KafkaException):
            producer.commit_transaction(30)
        assert [row["start_offset"] for row in rows(moldau, "producers", ongoing)] == [None, None]
        assert succeed(moldau("consume", ongoing, "--read-committed")) == ""
        again = succeed(moldau("txn", "abort", "--transactional-id", transactional_id, "--yes"))
        assert (
            again == f"There was no open transaction of transactional id {transactional_id}; its producer is fenced.\n"
        )

    def test_by_start_offset(self, bootstrap: str, moldau: Run, producer: Producer, ongoing: str) -> None:
        line = ["txn", "abort", "--topic", ongoing, "--partition", "1", "--start-offset", "0"]
        assert "Abort the transaction" in on_terminal(bootstrap, line, "n\n")
        assert [row["start_offset"] for row in rows(moldau, "producers", ongoing)] == [0, 0]
        assert succeed(moldau(*line, "--yes")) == f"Aborted the transaction of {ongoing}-1.\n"
        assert [row["start_offset"] for row in rows(moldau, "producers", ongoing)] == [0, None]
        fail(moldau(*line, "--yes"), 1, "no open transaction")

    def test_by_producer(self, moldau: Run, producer: Producer, ongoing: str) -> None:
        (_, who) = rows(moldau, "producers", ongoing)
        line = ("txn", "abort", "--topic", ongoing, "--partition", "1", "--producer-id", str(who["producer_id"]), "-y")
        succeed(moldau(*line, "--producer-epoch", str(who["producer_epoch"]), "-o", "json"))
        assert [row["start_offset"] for row in rows(moldau, "producers", ongoing)] == [0, None]


class TestHanging:
    def test_what_hangs_is_found_and_aborted(self, start_broker: StartBroker, transactional_id: str) -> None:
        """A producer of old wrote to a partition that it had not told its coordinator of."""
        broker = start_broker(transaction_partition_verification_enable="false")
        moldau = runner(broker.bootstrap)
        with RawClient(broker.bootstrap) as raw:
            raw.create_topic("orders", 2)
            node_id = raw.metadata("orders").partitions[0].leader_id
            Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id}).init_transactions(
                30
            )
            (known,) = rows(moldau, "describe", transactional_id)
            lost = batches.Producer(known["producer_id"], known["producer_epoch"])
            old = int(time.time() * 1000) - HOUR_MS
            pending = batches.batch(producer=lost, sequence=0, attributes=batches.TRANSACTIONAL, timestamp=old)
            request = raw.produce_request("orders", pending, partition=1)
            request.transactional_id = transactional_id
            assert raw.ask(request, 11).responses[0].partition_responses[0].error_code == 0
        assert succeed(moldau("txn", "find-hanging", "--max-transaction-timeout", "2h")) == ""
        assert rows(moldau, "find-hanging", "--topic", "orders", "--partition", "0") == []
        (found,) = rows(moldau, "find-hanging")
        assert (found["topic"], found["partition"], found["start_offset"]) == ("orders", 1, 0)
        assert (found["producer_id"], found["producer_epoch"]) == lost
        assert 3600 <= found["idle_seconds"] < 5000
        (again,) = rows(moldau, "find-hanging", "--broker", str(node_id))
        assert (again["topic"], again["start_offset"]) == ("orders", 0)
        told = moldau("txn", "find-hanging", "--topic", "orders")
        advice = told.stderr.strip().removeprefix("Abort the first with: moldau ").split()
        succeed(moldau(*advice, "--yes"))
        assert rows(moldau, "find-hanging") == []
        assert succeed(moldau("consume", "orders", "--read-committed")) == ""
