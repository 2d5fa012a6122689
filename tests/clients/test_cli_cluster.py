"""`moldau cluster` and `moldau partition` on one broker: what they show, and what they refuse in one line."""

import json

from support.brokers.processes import CreateTopic
from support.clients.cli import Run, fail, succeed


def test_one_broker_described(moldau: Run, create_topic: CreateTopic) -> None:
    create_topic(partitions=2)
    found = json.loads(succeed(moldau("cluster", "describe", "-o", "json")))
    (broker,) = found["brokers"]
    assert broker["controller"]
    assert broker["leads"] == broker["replicas"] == broker["in_sync"] >= 2
    assert str(broker["id"]) in succeed(moldau("cluster", "describe"))


def test_a_broker_that_is_well(moldau: Run, create_topic: CreateTopic) -> None:
    create_topic()
    assert "All is well" in succeed(moldau("cluster", "health"))
    found = json.loads(succeed(moldau("cluster", "health", "-o", "json")))
    assert found["well"]


def test_one_replica_is_as_many_in_sync_as_there_can_be(moldau: Run, create_topic: CreateTopic) -> None:
    name = create_topic()
    succeed(moldau("topic", "alter", name, "--set", "min.insync.replicas=2"))
    succeed(moldau("produce", name, "--acks", "all", stdin="taken\n"))
    assert "All is well" in succeed(moldau("cluster", "health"))
    succeed(moldau("topic", "delete", name, "--yes"))


def test_nowhere_to_go(moldau: Run, create_topic: CreateTopic) -> None:
    name = create_topic()
    node = json.loads(succeed(moldau("cluster", "describe", "-o", "json")))["controller"]
    fail(moldau("cluster", "decommission", str(node)), 1, "there are 0 brokers", "Add a broker")
    fail(moldau("cluster", "decommission", "99"), 1, "no broker 99", str(node))
    fail(moldau("partition", "replicate", name, "--factor", "3"), 1, "3 replicas need 3 brokers")
    fail(moldau("partition", "reassign", "--run", "--brokers", "99"), 1, "no broker 99")


def test_partitions_that_do_not_exist(moldau: Run, create_topic: CreateTopic, tmp_path) -> None:
    name = create_topic(partitions=2)
    fail(moldau("partition", "reassign", "--plan", "-t", "nope"), 1, "no topic 'nope'")
    fail(moldau("partition", "reassign", "--plan", "-t", f"{name}:7"), 1, f"{name!r} has no partition 7", "has 2")
    fail(moldau("partition", "replicate", "nope", "--factor", "1"), 1, "no topic 'nope'")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": name, "partition": 9, "replicas": [1]}]}))
    fail(moldau("partition", "reassign", "--run", "--file", str(plan)), 1, f"{name!r} has no partition 9")


def test_nothing_to_move(moldau: Run, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    assert "Nothing has to move" in succeed(moldau("partition", "reassign", "--plan", "-t", name))
    assert "Nothing has to move" in succeed(moldau("partition", "replicate", name, "--factor", "1"))
    assert succeed(moldau("partition", "reassign", "--list")) == "No partition is being reassigned.\n"
    assert "nothing to cancel" in succeed(moldau("partition", "reassign", "--cancel"))
    assert json.loads(succeed(moldau("partition", "reassign", "--plan", "-o", "json"))) == {
        "version": 1,
        "partitions": [],
    }
