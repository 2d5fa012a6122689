"""`moldau group` and `moldau consume --group` as a user meets them: the real command against a real broker."""

import csv
import json
import select
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from support.brokers.processes import CreateTopic, StartBroker
from support.clients.cli import Run, complete, fail, interrupt, on_terminal, runner, start, succeed
from support.clients.raw import RawClient
from support.eventually import eventually
from support.kafka import jvm

HOUR_MS = 3_600_000
PROTOCOLS = ("classic", "consumer")


@pytest.fixture
def group(admin: AdminClient) -> Iterator[str]:
    """The name of a group that is gone after the test."""
    name = f"cli-{uuid.uuid4().hex[:12]}"
    yield name
    with suppress(KafkaException):  # it may never have been there, or be deleted already
        admin.delete_consumer_groups([name])[name].result()


@pytest.fixture
def filled(bootstrap: str, create_topic: CreateTopic) -> str:
    """Two partitions of ten records each. Those of partition 0 are old: offset n is from second 1,000 + n of 1970."""
    name = create_topic(partitions=2, configs={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(10):
        producer.produce(name, f"0-{n}".encode(), partition=0, timestamp=1_000_000 + n * 1000)
        producer.produce(name, f"1-{n}".encode(), partition=1)
    assert producer.flush(30) == 0
    return name


@contextmanager
def member(bootstrap: str, group: str, topic: str, protocol: str = "classic", **more: Any) -> Iterator[Consumer]:
    """A live member that has been given its partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "cli-member",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **more,
        }
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline, "the member was given no partition within 30 s"
        yield consumer
    finally:
        consumer.close()


def described(moldau: Run, group: str) -> dict[str, Any]:
    (document,) = json.loads(succeed(moldau("group", "describe", group, "-o", "json")))
    return dict(document)


def committed(admin: AdminClient, group: str) -> dict[int, int]:
    """Partition → offset, of all that the group has committed."""
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return {one.partition: one.offset for one in future.result().topic_partitions or ()}


def commit(admin: AdminClient, group: str, topic: str, offset: int, partitions: tuple[int, ...] = (0, 1)) -> None:
    offsets = [TopicPartition(topic, partition, offset) for partition in partitions]
    future = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])[group]
    assert all(one.error is None for one in future.result().topic_partitions or ())


class TestLooking:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_a_live_group(self, bootstrap: str, moldau: Run, filled: str, group: str, protocol: str) -> None:
        with member(bootstrap, group, filled, protocol) as consumer:
            consumer.commit(offsets=[TopicPartition(filled, 0, 4), TopicPartition(filled, 1, 10)], asynchronous=False)
            found = described(moldau, group)
            listed = json.loads(succeed(moldau("group", "list", "-o", "json")))
        assert (found["state"], found["protocol"]) == ("Stable", protocol)
        assert found["assignor"] == {"classic": "range", "consumer": "uniform"}[protocol]
        (only,) = found["members"]
        assert only["client"] == "cli-member"
        assert only["partitions"] == [{"topic": filled, "partition": 0}, {"topic": filled, "partition": 1}]
        behind, done = found["offsets"]
        assert (behind["committed"], behind["end"], behind["lag"], behind["owner"]) == (4, 10, 6, only["member"])
        assert abs(behind["lag_seconds"] - (time.time() - 1004)) < 600, "the age of the record with offset 4"
        assert (done["committed"], done["lag"], done["lag_seconds"]) == (10, 0, 0)
        assert found["lag"] == 6
        assert {"group": group, "protocol": protocol, "state": "Stable"} in listed

    def test_every_age_is_told_at_once_whatever_the_lag(
        self, admin: AdminClient, bootstrap: str, moldau: Run, create_topic: CreateTopic, group: str
    ) -> None:
        """Batches of 16 KB to 1 MB: those that do not fit into the first Fetch are read with the next."""
        name = create_topic(partitions=4, configs={"retention.ms": "-1"})
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "batch.size": 900_000})
        for partition, size in enumerate((16, 1_000, 5_000, 9_000)):
            for n in range(1_000):
                stamp = 1_000_000 + partition * 100_000_000 + n * 1000
                producer.produce(name, bytes(size), partition=partition, timestamp=stamp)
        assert producer.flush(60) == 0
        commit(admin, group, name, 7, (0, 1, 2, 3))
        began = time.monotonic()
        rows = described(moldau, group)["offsets"]
        assert time.monotonic() - began < 8, "15 s before; a loaded machine needs seconds to start a process"
        expected = [time.time() - (1_007 + partition * 100_000) for partition in range(4)]
        assert [row["lag"] for row in rows] == [993] * 4
        assert [row["lag_seconds"] for row in rows] == pytest.approx(expected, abs=60)

    def test_a_static_member_and_a_partition_without_a_commit(
        self, bootstrap: str, moldau: Run, filled: str, group: str
    ) -> None:
        with member(bootstrap, group, filled, **{"group.instance.id": "desk-1"}) as consumer:
            consumer.commit(offsets=[TopicPartition(filled, 0, 4)], asynchronous=False)
            shown = succeed(moldau("group", "describe", group)).splitlines()
        assert "state Stable" in shown[0]
        assert "desk-1" in shown[2].split()
        assert f"{filled}:0,1" in shown[2].split()
        assert shown[-1].split()[:-1] == [filled, "1", "-", "10", "-", "-"]
        succeed(moldau("group", "list"))

    def test_control_groups_are_hidden_unless_asked_for(
        self, admin: AdminClient, moldau: Run, filled: str, group: str
    ) -> None:
        control = f"moldau-{uuid.uuid4()}-{group}-0"
        commit(admin, group, filled, 1)
        commit(admin, control, filled, 1, (0,))
        for output in ((), ("-o", "json")):
            done = moldau("group", "list", *output)
            assert group in succeed(done)
            assert control not in done.stdout
            assert "of exactly-once sinks not shown. List all with: moldau group list --all" in done.stderr
            done = moldau("group", "list", "--all", *output)
            assert control in succeed(done)
            assert done.stderr == ""
        assert control not in succeed(moldau("group", "describe"))
        assert control in succeed(moldau("group", "describe", control))

    def test_filters(self, admin: AdminClient, bootstrap: str, moldau: Run, filled: str, group: str) -> None:
        commit(admin, group, filled, 1)

        def shows(*arguments: str) -> bool:
            return group in succeed(moldau("group", "list", *arguments)).split()

        assert shows()
        assert shows("--state", "empty")
        assert shows("--state", "Stable,EMPTY", "--type", "Classic")
        assert not shows("--state", "stable,rebalancing")
        assert not shows("--type", "consumer")
        with member(bootstrap, group, filled):
            assert shows("--state", "stable")
            assert not shows("--state", "empty")

    def test_markers_and_deleted_records_count_as_lag_but_not_as_time(
        self, admin: AdminClient, bootstrap: str, moldau: Run, raw: RawClient, create_topic: CreateTopic, group: str
    ) -> None:
        name = create_topic()
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{group}-txn", "log_level": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(name, b"a record, then its marker")
        producer.commit_transaction(30)
        commit(admin, group, name, 1, (0,))
        (row,) = described(moldau, group)["offsets"]
        assert (row["end"], row["lag"], row["lag_seconds"]) == (2, 1, 0)
        old = json.dumps({"value": "old", "timestamp": 1_000_000})
        succeed(moldau("produce", name, "--format", "json", stdin="\n".join([old, json.dumps({"value": "new"})])))
        raw.delete_records(name, 3)
        (row,) = described(moldau, group)["offsets"]
        assert (row["end"], row["lag"]) == (4, 3)
        assert 0 <= row["lag_seconds"] < 600, "the first record that is still there counts"

    def test_a_topic_that_is_gone(
        self, admin: AdminClient, moldau: Run, raw: RawClient, filled: str, create_topic: CreateTopic, group: str
    ) -> None:
        """Apache Kafka forgets its offsets with it; where they are left, they are shown without an end."""
        commit(admin, group, filled, 5)
        other = create_topic()
        commit(admin, group, other, 0, (0,))
        raw.delete_topics([filled])
        rows = [row for row in described(moldau, group)["offsets"] if row["topic"] == filled]
        assert all(row["end"] is None and row["lag"] is None for row in rows)

    def test_mistakes(self, moldau: Run) -> None:
        fail(moldau("group", "describe", "cli-none"), 1, "no group 'cli-none'", "moldau group list")
        fail(moldau("group", "describe", ""), 1, "''")
        fail(moldau("group", "list", "-b", "127.0.0.1:1"), 1, "moldau up")


class TestResets:
    @pytest.mark.parametrize(
        ("way", "offsets"),
        [
            (("--to-offset", "7"), {0: 7, 1: 7}),
            (("--to-earliest",), {0: 0, 1: 0}),
            (("--to-latest",), {0: 10, 1: 10}),
            (("--to-current",), {0: 5, 1: 5}),
            (("--shift-by", "-2"), {0: 3, 1: 3}),
            (("--shift-by", "2"), {0: 7, 1: 7}),
            (("--to-datetime", "1970-01-01T00:16:46Z"), {0: 6, 1: 0}),
            (("--to-datetime", "1006500"), {0: 7, 1: 0}),
            (("--by-duration", "P1D"), {0: 10, 1: 0}),  # nothing of partition 0 is that young
            (("--by-duration", "1h"), {0: 10, 1: 0}),
        ],
    )
    def test_every_way(
        self, admin: AdminClient, moldau: Run, filled: str, group: str, way: tuple[str, ...], offsets: dict[int, int]
    ) -> None:
        commit(admin, group, filled, 5)
        line = ("group", "reset-offsets", group, "--topic", filled, *way)
        planned = json.loads(succeed(moldau(*line, "-o", "json")))
        assert planned["executed"] is False
        assert {row["partition"]: (row["committed"], row["new"]) for row in planned["offsets"]} == {
            partition: (5, offset) for partition, offset in offsets.items()
        }
        assert committed(admin, group) == {0: 5, 1: 5}, "a dry run changes nothing"
        succeed(moldau(*line, "--execute"))
        assert committed(admin, group) == offsets

    def test_some_partitions_and_all_topics(self, admin: AdminClient, moldau: Run, filled: str, group: str) -> None:
        line = ("group", "reset-offsets", group, "--execute")
        succeed(moldau(*line, "--topic", f"{filled}:1", "--to-offset", "3"))
        assert committed(admin, group) == {1: 3}
        succeed(moldau(*line, "--all-topics", "--to-latest"))
        assert committed(admin, group) == {1: 10}
        succeed(moldau(*line, "--topic", f"{filled}:0", "--topic", f"{filled}:0,1", "--to-earliest"))
        assert committed(admin, group) == {0: 0, 1: 0}

    def test_the_table_says_that_it_was_a_dry_run(self, moldau: Run, filled: str, group: str) -> None:
        done = moldau("group", "reset-offsets", group, "--topic", filled, "--to-offset", "99")
        assert [line.split() for line in succeed(done).splitlines()] == [
            ["TOPIC", "PARTITION", "COMMITTED", "NEW", "OFFSET"],
            [filled, "0", "-", "10"],
            [filled, "1", "-", "10"],
        ]
        assert done.stderr.count("offset 99 is outside") == 2
        assert "--execute" in done.stderr
        assert group not in succeed(moldau("group", "list"))

    def test_a_plan_goes_through_a_file(
        self, admin: AdminClient, moldau: Run, filled: str, group: str, tmp_path: Path
    ) -> None:
        commit(admin, group, filled, 5)
        plan = tmp_path / "plan.csv"
        plan.write_text(
            succeed(moldau("group", "reset-offsets", group, "--all-topics", "--shift-by", "-1", "--export"))
        )
        assert list(csv.reader(plan.read_text().splitlines())) == [[filled, "0", "4"], [filled, "1", "4"]]
        assert committed(admin, group) == {0: 5, 1: 5}
        succeed(moldau("group", "reset-offsets", group, "--from-file", str(plan), "--execute"))
        assert committed(admin, group) == {0: 4, 1: 4}
        plan.write_text(f"{group},{filled},0,77\nother,{filled},1,0\n")
        done = moldau("group", "reset-offsets", group, "--from-file", str(plan), "--execute")
        assert "offset 77 is outside" in done.stderr
        assert committed(admin, group) == {0: 10, 1: 4}

    @pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")
    def test_kafka_s_own_tool_takes_our_plan(
        self, admin: AdminClient, bootstrap: str, moldau: Run, filled: str, group: str, tmp_path: Path
    ) -> None:
        plan = tmp_path / "plan.csv"
        plan.write_text(
            succeed(moldau("group", "reset-offsets", group, "--topic", filled, "--to-offset", "6", "--export"))
        )
        tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        line = ("--bootstrap-server", bootstrap, "--reset-offsets", "--group", group, "--from-file", str(plan))
        done = jvm.run(tool, *line, "--execute")
        assert done.returncode == 0, done.stdout + done.stderr
        assert committed(admin, group) == {0: 6, 1: 6}

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_a_group_in_use_is_refused(
        self, admin: AdminClient, bootstrap: str, moldau: Run, filled: str, group: str, protocol: str
    ) -> None:
        line = ("group", "reset-offsets", group, "--topic", filled, "--to-earliest", "--execute")
        with member(bootstrap, group, filled, protocol):
            fail(moldau(*line), 1, f"group '{group}' has 1 live member (state Stable)", "moldau group describe")
            fail(moldau("group", "delete", group, "--yes"), 1, f"group '{group}' has live members")
        succeed(moldau(*line))
        assert committed(admin, group) == {0: 0, 1: 0}

    def test_mistakes(self, moldau: Run, filled: str, group: str) -> None:
        line = ("group", "reset-offsets", group)
        fail_last(moldau(*line, "--topic", "cli-none", "--to-latest"), "no topic 'cli-none'")
        fail_last(moldau(*line, "--topic", f"{filled}:0,9", "--to-latest"), "no partition 9")
        fail_last(moldau(*line, "--all-topics", "--to-latest"), "no committed offset")
        fail_last(moldau(*line, "--topic", filled, "--shift-by", "1"), f"{filled}-0", "--shift-by")


def fail_last(done: Any, *words: str) -> None:
    """Failed, with these words in the last line; a note may come before it."""
    assert done.returncode == 1, (done.stdout, done.stderr)
    for word in words:
        assert word in done.stderr.splitlines()[-1]


class TestDeleting:
    def test_each_group_has_its_outcome(self, admin: AdminClient, moldau: Run, filled: str, group: str) -> None:
        commit(admin, group, filled, 1)
        done = moldau("group", "delete", group, "cli-none", "--yes")
        fail(done, 1, "1 of 2 were not deleted")
        rows = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
        assert rows[1] == [group, "deleted"]
        assert rows[2][0] == "cli-none"
        assert rows[2][1].startswith("there is no group")
        assert group not in succeed(moldau("group", "list"))
        commit(admin, group, filled, 1)
        assert succeed(moldau("group", "delete", group, "-y")) == f"Deleted {group}.\n"
        fail(moldau("group", "delete", group, "-y"), 1, f"no group '{group}'")
        commit(admin, group, filled, 1)
        document = json.loads(succeed(moldau("group", "delete", group, "-y", "-o", "json")))
        assert document == [{"group": group, "outcome": "deleted"}]

    def test_it_asks_on_a_terminal(
        self, admin: AdminClient, bootstrap: str, moldau: Run, filled: str, group: str
    ) -> None:
        commit(admin, group, filled, 1)
        assert "Delete" in on_terminal(bootstrap, ["group", "delete", group], "n\n")
        assert group in succeed(moldau("group", "list"))
        assert f"Deleted {group}" in on_terminal(bootstrap, ["group", "delete", group], "y\n")

    def test_offsets_of_some_partitions(self, admin: AdminClient, moldau: Run, filled: str, group: str) -> None:
        commit(admin, group, filled, 5)
        line = ("group", "delete-offsets", group, "--yes", "--topic")
        assert succeed(moldau(*line, f"{filled}:1")) == f"Deleted {filled}-1.\n"
        assert committed(admin, group) == {0: 5}
        fail(moldau(*line, f"{filled}:0,1"), 1, f"no committed offset for {filled}-1")
        assert json.loads(succeed(moldau(*line, filled, "-o", "json"))) == [
            {"topic": filled, "partition": 0, "outcome": "deleted"}
        ]
        fail(moldau("group", "delete-offsets", "cli-none", "-y", "-t", filled), 1, "no group 'cli-none'")

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_offsets_of_a_subscribed_topic_are_kept(
        self, admin: AdminClient, bootstrap: str, moldau: Run, filled: str, group: str, protocol: str
    ) -> None:
        with member(bootstrap, group, filled, protocol) as consumer:
            consumer.commit(offsets=[TopicPartition(filled, 0, 4)], asynchronous=False)
            fail(moldau("group", "delete-offsets", group, "-t", filled, "-y"), 1, "subscribed", "moldau group describe")
        assert committed(admin, group) == {0: 4}


class TestConsuming:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_a_group_goes_on_where_it_stopped(
        self, admin: AdminClient, moldau: Run, filled: str, group: str, protocol: str
    ) -> None:
        line = ("consume", filled, "--group", group, "--protocol", protocol)
        first = succeed(moldau(*line, "-n", "7")).splitlines()
        assert len(first) == 7
        found = described(moldau, group)
        assert (found["state"], found["protocol"], found["members"]) == ("Empty", protocol, [])
        assert found["lag"] + sum(committed(admin, group).values()) == 10 * len(found["offsets"])
        rest = succeed(moldau(*line)).splitlines()
        assert sorted(first + rest) == sorted(f"{partition}-{n}" for partition in (0, 1) for n in range(10))
        assert succeed(moldau(*line)) == ""
        succeed(moldau("produce", filled, "-p", "0", stdin="later\n"))
        assert succeed(moldau(*line)) == "later\n"
        assert committed(admin, group) == {0: 11, 1: 10}

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_ctrl_c_commits_and_leaves(
        self, bootstrap: str, moldau: Run, filled: str, group: str, protocol: str
    ) -> None:
        process = start(bootstrap, "consume", filled, "-g", group, "--protocol", protocol, "--follow", "--from", "end")
        assert process.stdout is not None
        eventually(lambda: described_quietly(moldau, group) == "Stable", "the group is stable")

        # a member that begins at the end has to have looked where that is before it sees anything
        def sees_news() -> bool:
            succeed(moldau("produce", filled, "-p", "1", stdin="news\n"))
            return readable(process)

        eventually(sees_news, "the news are shown")
        assert process.stdout.readline() == "news\n"
        code, _, said = interrupt(process)
        assert (code, said) == (130, "")
        found = described(moldau, group)
        assert (found["state"], found["members"]) == ("Empty", [])
        (row,) = [row for row in found["offsets"] if row["partition"] == 1]
        assert row["committed"] > 10

    def test_two_members_share(self, bootstrap: str, moldau: Run, filled: str, group: str) -> None:
        with member(bootstrap, group, filled) as other:
            process = start(bootstrap, "consume", filled, "-g", group, "--follow", "-o", "json")
            deadline = time.monotonic() + 60
            while len(other.assignment()) != 1:
                other.poll(0.1)
                assert time.monotonic() < deadline
            (theirs,) = other.assignment()
            assert process.stdout is not None
            ours = {json.loads(process.stdout.readline())["partition"] for _ in range(10)}
            assert ours == {1 - theirs.partition}
            assert interrupt(process)[0] == 130

    def test_a_reader_that_leaves_commits_only_what_it_could_take(
        self, bootstrap: str, moldau: Run, create_topic: CreateTopic, group: str
    ) -> None:
        name = create_topic()
        succeed(moldau("produce", name, stdin="line\n" * 50_000))
        process = start(bootstrap, "consume", name, "-g", group, "--follow")
        assert process.stdout is not None
        assert process.stdout.readline() == "line\n"
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
        found = described(moldau, group)
        assert found["state"] == "Empty"
        assert found["lag"] > 0 or not found["offsets"]

    def test_mistakes(self, moldau: Run, group: str) -> None:
        fail(moldau("consume", "cli-none", "-g", group), 1, "no topic 'cli-none'")

    def test_a_broker_without_the_newer_protocol(self, start_broker: StartBroker) -> None:
        moldau = runner(start_broker(group_coordinator_rebalance_protocols="classic").bootstrap)
        succeed(moldau("produce", "orders", stdin="first\n"))
        refused = moldau("consume", "orders", "-g", "billing", "--protocol", "consumer")
        fail(refused, 1, "group 'billing' refused this member", "--protocol classic")
        assert succeed(moldau("consume", "orders", "-g", "billing")) == "first\n"

    def test_the_shell_completes_groups(
        self, admin: AdminClient, bootstrap: str, moldau: Run, filled: str, group: str
    ) -> None:
        commit(admin, group, filled, 1)
        assert group in complete(bootstrap, f"moldau group describe {group[:8]}")
        assert group in complete(bootstrap, f"moldau consume t --group {group[:8]}")
        assert "reset-offsets" in complete(bootstrap, "moldau group res")


def described_quietly(moldau: Run, group: str) -> str:
    """The state of a group that may not be there yet."""
    done = moldau("group", "describe", group, "-o", "json")
    return str(json.loads(done.stdout)[0]["state"]) if done.returncode == 0 else ""


def readable(process: subprocess.Popen[str]) -> bool:
    """Whether the process has written something."""
    return bool(select.select([process.stdout], [], [], 0.5)[0])
