"""Administration of a real cluster: our commands, and Kafka's own where Java is there. One cluster for all tests.

Every test makes topics of its own and leaves three brokers behind that are well.
"""

import json
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic
from kafka.protocol.admin import CreateTopicsRequest

from moldau.testing import Cluster
from support.clients import confluent, quotas
from support.clients.cli import Run, interrupt, runner, start, succeed
from support.clients.raw import RawClient
from support.kafka import jvm
from support.log.batches import Written, batch

java = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")

Layout = dict[int, list[int]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as made:
        yield made


@pytest.fixture
def moldau(cluster: Cluster) -> Run:
    return runner(cluster.bootstrap_servers)


def create(cluster: Cluster, layout: Layout) -> str:
    """A topic with these replicas of its partitions."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = confluent.admin(cluster.bootstrap_servers)
    replicas = [layout[index] for index in sorted(layout)]
    admin.create_topics([NewTopic(name, len(replicas), replica_assignment=replicas)])[name].result(30)

    def known(to: int) -> bool:
        (row,) = cluster.metadata(name, of=to).topics
        return bool(row.partitions) and set(row.partitions[0].isr_nodes) == set(layout[0])

    cluster.wait_for(lambda: all(known(each) for each in cluster.running), "that every broker knows the topic")
    return name


def write(cluster: Cluster, topic: str, count: int, size: int = 10) -> list[bytes]:
    """As much to each partition. The first answer to a throttled follower may have a megabyte: slow takes more."""
    values = [f"{number}".encode().ljust(size, b".") for number in range(count)]
    partitions = len(replicas(cluster, topic))
    placed = [{"value": value, "partition": number % partitions} for number, value in enumerate(values)]
    confluent.write(cluster.bootstrap_servers, topic, placed, acks="all")
    return values


def read(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in confluent.read(cluster.bootstrap_servers, topic)]


def replicas(cluster: Cluster, topic: str) -> Layout:
    (row,) = cluster.metadata(topic).topics
    return {each.partition_index: list(each.replica_nodes) for each in row.partitions}


def throttles(moldau: Run, topic: str) -> dict[str, str]:
    (document,) = json.loads(succeed(moldau("topic", "describe", topic, "-o", "json")))
    return {name: value for name, value in document["configs"].items() if "throttled" in name}


def plan_file(directory: Path, topic: str, layout: Layout) -> str:
    rows = [{"topic": topic, "partition": index, "replicas": ids} for index, ids in layout.items()]
    file = directory / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(file)


def test_a_cluster_that_is_well(cluster: Cluster, moldau: Run) -> None:
    topic = create(cluster, {0: [1, 2, 3], 1: [2, 3, 1]})
    values = write(cluster, topic, 100)
    assert sorted(read(cluster, topic)) == sorted(values)
    described = json.loads(succeed(moldau("cluster", "describe", "-o", "json")))
    assert [broker["id"] for broker in described["brokers"]] == [1, 2, 3]
    assert described["controller"] == cluster.controller
    cluster.wait_for(lambda: moldau("cluster", "health").returncode == 0, "that all is well")


def test_partitions_move_with_their_records(cluster: Cluster, moldau: Run, tmp_path: Path) -> None:
    topic = create(cluster, {0: [1, 2], 1: [2, 1]})
    values = write(cluster, topic, 500)
    plan = plan_file(tmp_path, topic, {0: [3, 2], 1: [3, 1]})
    succeed(moldau("partition", "reassign", "--run", "--file", plan, "--throttle", "50MB"))
    assert replicas(cluster, topic) == {0: [3, 2], 1: [3, 1]}
    assert throttles(moldau, topic) == {}
    assert sorted(read(cluster, topic)) == sorted(values)


def test_a_topic_is_spread_over_named_brokers(cluster: Cluster, moldau: Run) -> None:
    topic = create(cluster, {0: [1], 1: [1], 2: [1], 3: [2]})
    shown = json.loads(
        succeed(moldau("partition", "reassign", "--plan", "-t", topic, "--brokers", "2,3", "-o", "json"))
    )
    assert len(shown["partitions"]) == 3
    succeed(moldau("partition", "reassign", "--run", "-t", topic, "--brokers", "2,3"))
    assert sorted(ids[0] for ids in replicas(cluster, topic).values()) == [2, 2, 3, 3]


def test_a_slow_move_is_seen_and_cancelled(cluster: Cluster, moldau: Run, tmp_path: Path) -> None:
    topic = create(cluster, {0: [1, 2]})
    values = write(cluster, topic, 3000, size=1000)
    plan = plan_file(tmp_path, topic, {0: [1, 3]})
    watching = start(cluster.bootstrap_servers, "partition", "reassign", "--run", "--file", plan, "--throttle", "1KB")
    assert watching.stderr is not None
    assert watching.stderr.readline() == "0 of 1 partitions are reassigned.\n"
    code, _, said = interrupt(watching)
    assert (code, "brokers continue" in said) == (130, True)
    (row,) = json.loads(succeed(moldau("partition", "reassign", "--list", "-t", topic, "-o", "json")))
    assert (row["replicas"], row["adding"], row["removing"]) == ([1, 3], [3], [2])
    assert throttles(moldau, topic)
    assert moldau("cluster", "health").returncode == 0, "a replica that only just comes is not missed"
    assert "Cancelled 1 reassignment." in succeed(moldau("partition", "reassign", "--cancel", "-t", topic))
    assert replicas(cluster, topic) == {0: [1, 2]}
    assert throttles(moldau, topic) == {}
    assert sorted(read(cluster, topic)) == sorted(values)


def test_more_and_fewer_replicas(cluster: Cluster, moldau: Run) -> None:
    topic = create(cluster, {0: [2]})
    values = write(cluster, topic, 100)
    succeed(moldau("partition", "replicate", topic, "--factor", "3"))
    assert cluster.in_sync(topic) == {1, 2, 3}
    succeed(moldau("partition", "replicate", topic, "--factor", "2"))
    assert replicas(cluster, topic)[0][0] == 2
    assert len(replicas(cluster, topic)[0]) == 2
    assert sorted(read(cluster, topic)) == sorted(values)


def test_a_broker_that_is_missing_and_comes_back(cluster: Cluster, moldau: Run) -> None:
    topic = create(cluster, {0: [1, 2, 3]})
    cluster.kill(1)
    cluster.wait_for(lambda: cluster.leader_of(topic) in (2, 3), "that another one leads")
    cluster.wait_for(lambda: 1 not in {row.node_id for row in cluster.metadata().brokers}, "that it is not listed")
    done = moldau("cluster", "health")
    assert done.returncode == 1
    assert "broker 1 is missing" in done.stdout
    assert topic in done.stdout
    cluster.start(1)
    cluster.wait_for(lambda: cluster.in_sync(topic) == {1, 2, 3}, "that it is in sync again")
    succeed(moldau("partition", "elect", "-t", topic))
    assert cluster.leader_of(topic) == 1
    assert "No partition needs an election" in succeed(moldau("partition", "elect", "-t", topic))


def test_a_broker_that_cannot_be_heard(cluster: Cluster) -> None:
    topic = create(cluster, {0: [3, 1, 2]})
    cluster.isolate(3)
    cluster.wait_for(lambda: cluster.leader_of(topic) in (1, 2), "that another one leads")
    cluster.heal()
    cluster.wait_for(lambda: cluster.in_sync(topic) == {1, 2, 3}, "that it is in sync again")


def test_the_brokers_own_topics_get_their_replicas(cluster: Cluster, moldau: Run) -> None:
    topic = create(cluster, {0: [1]})
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"group-{topic}"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    succeed(moldau("partition", "replicate", "__consumer_offsets", "--factor", "1"))
    assert {len(ids) for ids in replicas(cluster, "__consumer_offsets").values()} == {1}
    succeed(moldau("partition", "replicate", "--internal"))
    assert {len(ids) for ids in replicas(cluster, "__consumer_offsets").values()} == {3}
    consumer.close()
    # Another one: this librdkafka may still know the coordinator of before, and says so instead of asking again.
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"group-{topic}"})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    consumer.close()
    assert found.offset == 7


def test_a_leader_at_any_price(cluster: Cluster, moldau: Run) -> None:
    topic = create(cluster, {0: [1, 2]})
    write(cluster, topic, 10)
    cluster.kill(2)
    cluster.wait_for(lambda: cluster.in_sync(topic) == {1}, "that the other one is not waited for")
    write(cluster, topic, 10)
    cluster.kill(1)
    cluster.start(2)
    cluster.wait_for(lambda: cluster.leader_of(topic) == -1, "that the partition has no leader")
    done = moldau("cluster", "health", "-o", "json")
    assert done.returncode == 1
    assert {"topic": topic, "partition": 0} in json.loads(done.stdout)["offline"]
    preferred = moldau("partition", "elect", "-t", topic)
    assert preferred.returncode == 1
    assert "no leader could be elected for 1 of 1 partitions" in preferred.stderr
    assert "elected" in succeed(moldau("partition", "elect", "-t", topic, "--unclean", "--yes"))
    cluster.wait_for(lambda: cluster.leader_of(topic) == 2, "that the replica that is left leads")
    assert len(read(cluster, topic)) == 10
    cluster.start(1)
    cluster.wait_for(lambda: cluster.in_sync(topic) == {1, 2}, "that both are in sync")
    cluster.wait_for(lambda: moldau("cluster", "health").returncode == 0, "that all is well")


@java
def test_kafkas_own_tools(cluster: Cluster, tmp_path: Path) -> None:
    topic = create(cluster, {0: [1, 2], 1: [2, 3]})
    write(cluster, topic, 100)

    def reassign(layout: Layout, *arguments: str) -> str:
        plan = plan_file(tmp_path, topic, layout)
        return tool(cluster, "reassign.ReassignPartitionsCommand", "--reassignment-json-file", plan, *arguments)

    said = reassign({0: [3, 2], 1: [1, 3]}, "--execute", "--throttle", "10000000")
    assert "Successfully started partition reassignments" in said
    cluster.wait_for(lambda: replicas(cluster, topic) == {0: [3, 2], 1: [1, 3]}, "that the partitions moved")
    said = reassign({0: [3, 2], 1: [1, 3]}, "--verify")
    assert said.count("is completed") == 2
    assert "Clearing topic-level throttles" in said

    write(cluster, topic, 6000, size=1000)
    reassign({0: [1, 2], 1: [2, 3]}, "--execute", "--throttle", "1000")
    assert topic in tool(cluster, "reassign.ReassignPartitionsCommand", "--list")
    said = reassign({0: [1, 2], 1: [2, 3]}, "--cancel")
    assert "Successfully cancelled" in said
    assert {index: set(ids) for index, ids in replicas(cluster, topic).items()} == {0: {2, 3}, 1: {1, 3}}
    said = tool(cluster, "LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    assert "rror" not in said


def tool(cluster: Cluster, name: str, *arguments: str) -> str:
    done = jvm.run(f"org.apache.kafka.tools.{name}", "--bootstrap-server", cluster.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_broker_leaves_for_good(cluster: Cluster, moldau: Run) -> None:
    """The last test: it leaves another broker in the place of one."""
    topic = create(cluster, {0: [3, 1], 1: [2, 3]})
    values = write(cluster, topic, 200)
    new = cluster.add_broker()
    assert "NEW REPLICAS" in succeed(moldau("cluster", "decommission", "3"))
    assert 3 in replicas(cluster, topic)[0]
    done = moldau("cluster", "decommission", "3", "--run", "--throttle", "100MB")
    assert "can be removed" in done.stderr, done.stderr
    assert done.returncode == 0
    (gone,) = [
        row for row in json.loads(succeed(moldau("cluster", "describe", "-o", "json")))["brokers"] if row["id"] == 3
    ]
    assert gone["replicas"] == gone["leads"] == 0
    assert gone["cordoned"]
    later = f"later-{uuid.uuid4().hex[:8]}"
    succeed(moldau("topic", "create", later, "-p", "6", "-r", "3"))
    assert {broker for ids in replicas(cluster, later).values() for broker in ids} == {1, 2, new}
    assert "cordoned" in moldau("partition", "reassign", "--plan", "--brokers", "1,3").stderr
    assert "takes new replicas" in moldau("cluster", "decommission", "3", "--cancel").stderr
    described = json.loads(succeed(moldau("cluster", "describe", "-o", "json")))["brokers"]
    assert not any(row["cordoned"] for row in described)
    cluster.stop(3)
    cluster.wait_for(lambda: 3 not in {row.node_id for row in cluster.metadata().brokers}, "that it is gone")
    assert new in {broker for ids in replicas(cluster, topic).values() for broker in ids}
    cluster.wait_for(lambda: moldau("cluster", "health").returncode == 0, "that all is well")
    assert sorted(read(cluster, topic)) == sorted(values)


def test_quotas_hold_on_every_broker_and_the_controller_counts_mutations(cluster: Cluster) -> None:
    brokers = cluster.running  # an earlier test may have left others stopped
    client_id = f"client-{uuid.uuid4().hex[:8]}"
    entity = {"client-id": client_id}
    other = next(each for each in brokers if each != cluster.controller)
    address = cluster.broker(other).bootstrap_servers
    key = (("client-id", client_id),)
    limits = {"producer_byte_rate": 20_000.0, "controller_mutation_rate": 1.0}
    topics = [create(cluster, {0: [each]}) for each in brokers]
    with RawClient(address) as admin:
        assert quotas.alter(admin, (entity, limits)) == [(0, None)]
        for each in brokers:
            with RawClient(cluster.broker(each).bootstrap_servers) as asked:
                cluster.wait_for(partial(knows, asked, {key: limits}), "that every broker knows the quotas")
        for each, topic in zip(brokers, topics, strict=True):
            with RawClient(cluster.broker(each).bootstrap_servers) as producer:
                answer = producer.ask(producer.produce_request(topic, batch(Written(bytes(20_000)))), 12, client_id)
                assert 800 <= answer.throttle_time_ms <= 1_000, "each broker counts by itself"
        with RawClient(address) as client:
            codes, waits = zip(*(create_raw(client, client_id, partitions) for partitions in (15, 1)), strict=True)
            assert codes == (0, 89)  # THROTTLING_QUOTA_EXCEEDED
            assert waits[0] == 0
            begun = time.monotonic()
            client.metadata("none")
            assert time.monotonic() - begun >= waits[1] / 1000 - 0.1, "the broker with the connection mutes it"
        assert quotas.alter(admin, (entity, dict.fromkeys(limits))) == [(0, None)]
        assert quotas.describe(admin) == {}


def knows(client: RawClient, wanted: object) -> bool:
    return quotas.describe(client) == wanted


def create_raw(client: RawClient, client_id: str, partitions: int) -> tuple[int, int]:
    """Error code and throttle time of CreateTopics."""
    item = CreateTopicsRequest.CreatableTopic
    name = f"topic-{uuid.uuid4().hex[:8]}"
    wanted = item(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    answer = client.ask(
        CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), 7, client_id=client_id
    )
    return int(answer.topics[0].error_code), int(answer.throttle_time_ms)
