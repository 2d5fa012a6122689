"""The command line as its user meets it: the real command, run as a process, against a real broker."""

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from support.clients.cli import Run, complete, fail, interrupt, on_terminal, start, succeed
from support.eventually import eventually


@pytest.fixture
def topic(admin: AdminClient) -> Iterator[str]:
    """A topic of two partitions that keeps old records, and is gone after the test."""
    name = f"cli-{uuid.uuid4().hex[:12]}"
    admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "-1"})])[name].result()
    yield name
    with suppress(KafkaException):  # some tests delete it themselves
        admin.delete_topics([name])[name].result()


def records(moldau: Run, *arguments: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in succeed(moldau("consume", *arguments, "-o", "json")).splitlines()]


class TestTopics:
    def test_storage_is_described(self, moldau: Run) -> None:
        name = f"cli-{uuid.uuid4().hex[:12]}"
        succeed(moldau("topic", "create", name, "--partitions", "2"))
        succeed(moldau("produce", name, stdin="one\ntwo\n"))
        rows = json.loads(succeed(moldau("-o", "json", "topic", "describe", "--storage", name)))
        assert [(row["topic"], row["partition"], row["begin"]) for row in rows] == [(name, 0, 0), (name, 1, 0)]
        assert sum(row["bytes"] for row in rows) > 50
        assert {row["state"] for row in rows} == {"ok"}
        assert {row["segments"] for row in rows} <= {1, None}  # None where the broker is on another machine
        assert "DIRTY RATIO" in succeed(moldau("topic", "describe", "--storage", name))

    def test_a_created_topic_is_listed_and_described(self, moldau: Run) -> None:
        name = f"cli-{uuid.uuid4().hex[:12]}"
        created = moldau("topic", "create", name, "-p", "3", "--replication", "1", "--set", "retention.ms=60000")
        assert f"Created topic {name}" in succeed(created)
        listed = json.loads(succeed(moldau("topic", "list", "-o", "json")))
        assert {"topic": name, "partitions": 3, "replication": 1} in listed
        (described,) = json.loads(succeed(moldau("-o", "json", "topic", "describe", name)))
        assert described["configs"]["retention.ms"] == "60000"
        assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
        assert all(partition["isr"] == partition["replicas"] for partition in described["partitions"])
        assert all((partition["begin"], partition["end"]) == (0, 0) for partition in described["partitions"])
        assert succeed(moldau("topic", "delete", name, "--yes")) == f"Deleted {name}.\n"
        assert name not in succeed(moldau("topic", "list"))

    def test_a_dry_run_creates_nothing(self, moldau: Run) -> None:
        name = f"cli-{uuid.uuid4().hex[:12]}"
        assert "nothing was changed" in succeed(moldau("topic", "create", name, "--dry-run"))
        assert name not in succeed(moldau("topic", "list"))

    def test_an_existing_topic_is_an_error_unless_accepted(self, moldau: Run, topic: str) -> None:
        fail(moldau("topic", "create", topic), 1, topic, "exists", "--if-not-exists")
        assert "exists already" in succeed(moldau("topic", "create", topic, "--if-not-exists"))

    def test_alter_adds_partitions_and_changes_settings(self, moldau: Run, topic: str) -> None:
        succeed(moldau("topic", "alter", topic, "--partitions", "4", "--set", "retention.ms=1000"))
        (described,) = json.loads(succeed(moldau("topic", "describe", topic, "-o", "json")))
        assert len(described["partitions"]) == 4
        assert described["configs"]["retention.ms"] == "1000"
        succeed(moldau("topic", "alter", topic, "--unset", "retention.ms"))
        (described,) = json.loads(succeed(moldau("topic", "describe", topic, "-o", "json")))
        assert "retention.ms" not in described["configs"]

    def test_describe_shows_offsets_in_a_table(self, moldau: Run, topic: str) -> None:
        succeed(moldau("produce", topic, "--partition", "1", stdin="a\nb\n"))
        lines = succeed(moldau("topic", "describe", topic)).splitlines()
        assert lines[0].startswith(f"Topic {topic}")
        assert lines[-1].split()[0] == "1"
        assert lines[-1].split()[-2:] == ["0", "2"]

    def test_mistakes(self, moldau: Run, topic: str) -> None:
        fail(moldau("topic", "create", "cli-x", "-c", "no.such=1"), 1, "no.such")
        fail(moldau("topic", "create", "cli-x", "-c", "retention.ms=abc"), 1, "retention.ms")
        fail(moldau("topic", "create", "cli-x", "-r", "99"), 1, "REPLICATION_FACTOR")
        fail(moldau("topic", "create", "cli x/y"), 1, "TOPIC_EXCEPTION")
        fail(moldau("topic", "alter", topic, "-p", "1"), 1, "INVALID_PARTITIONS")
        fail(moldau("topic", "alter", topic, "--set", "no.such=1"), 1, "no.such")
        fail(moldau("topic", "alter", "cli-none", "--set", "retention.ms=1"), 1, "no topic 'cli-none'")
        fail(moldau("topic", "describe", "cli-none"), 1, "no topic 'cli-none'", "moldau topic list")
        fail(moldau("topic", "delete", "cli-none", "--yes"), 1, "no topic 'cli-none'")


class TestProduceAndConsume:
    def test_lines_come_back_in_order(self, moldau: Run, topic: str) -> None:
        assert (
            succeed(moldau("produce", topic, "-p", "0", stdin="one\ntwo\nthree")) == f"Produced 3 records to {topic}.\n"
        )
        assert succeed(moldau("consume", topic)) == "one\ntwo\nthree\n"

    def test_keys_headers_timestamp_and_partition(self, moldau: Run, topic: str) -> None:
        line = ("produce", topic, "-k", ":", "-H", "a=1", "-H", "b=", "-p", "1", "--timestamp", "2026-01-31T12:00:00Z")
        succeed(moldau(*line, stdin="k:v:w\n"))
        assert succeed(moldau("consume", topic, "--keys", "--headers")) == "a=1,b=\tk\tv:w\n"
        (record,) = records(moldau, topic)
        assert record == {
            "topic": topic,
            "partition": 1,
            "offset": 0,
            "timestamp": 1769860800000,
            "timestamp_type": "CreateTime",
            "time": "2026-01-31T12:00:00.000Z",
            "key": "k",
            "value": "v:w",
            "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": ""}],
        }

    def test_keys_land_where_a_java_producer_puts_them(self, moldau: Run) -> None:
        name = f"cli-{uuid.uuid4().hex[:12]}"
        succeed(moldau("topic", "create", name, "-p", "10"))
        succeed(moldau("produce", name, "-k", ":", stdin="kafka:1\nmoldau:2\n21:3\n"))
        # murmur2 of the key, sign bit off, modulo 10, as Java's default partitioner has it
        assert {record["key"]: record["partition"] for record in records(moldau, name)} == {
            key: (java_murmur2(key.encode()) & 0x7FFFFFFF) % 10 for key in ("kafka", "moldau", "21")
        }
        succeed(moldau("topic", "delete", name, "--yes"))

    @pytest.mark.parametrize("form", ["hex", "base64"])
    def test_encodings(self, moldau: Run, topic: str, form: str) -> None:
        line = {"hex": "00ff10", "base64": "AP8Q"}[form]
        succeed(moldau("produce", topic, "--format", form, stdin=line + "\n"))
        assert succeed(moldau("consume", topic, "--format", form)) == line + "\n"
        (record,) = records(moldau, topic)
        assert record["value_base64"] == "AP8Q"

    def test_a_topic_is_copied_through_a_pipe(self, moldau: Run, topic: str) -> None:
        given = [
            {"key": "k", "value": "v", "headers": {"h": "x"}, "partition": 1, "timestamp": 1700000000000},
            {"key_base64": "/w==", "value": None, "partition": 0, "timestamp": 1700000000001},
            {"value": {"a": 1}, "partition": 0, "timestamp": 1700000000002},
        ]
        succeed(moldau("produce", topic, "--format", "json", stdin="\n".join(map(json.dumps, given))))
        first = succeed(moldau("consume", topic, "--format", "json"))
        copy = f"{topic}-copy"
        succeed(moldau("topic", "create", copy, "-p", "2", "--config", "retention.ms=-1"))
        succeed(moldau("produce", copy, "--format", "json", stdin=first))
        second = succeed(moldau("consume", copy, "--format", "json"))
        assert sorted(second.replace(copy, topic).splitlines()) == sorted(first.splitlines())
        succeed(moldau("topic", "delete", copy, "--yes"))

    def test_delivery_reports(self, moldau: Run, topic: str) -> None:
        done = moldau("produce", topic, "-p", "1", "-o", "json", "--idempotent", "-z", "lz4", stdin="a\nb\n")
        reports = [json.loads(line) for line in succeed(done).splitlines()]
        assert [(report["partition"], report["offset"]) for report in reports] == [(1, 0), (1, 1)]

    def test_a_file(self, moldau: Run, topic: str, tmp_path: Path) -> None:
        source = tmp_path / "lines"
        source.write_text("a\r\nb\n")
        succeed(moldau("produce", topic, "-p", "0", "--file", str(source)))
        assert succeed(moldau("consume", topic)) == "a\nb\n"

    def test_positions(self, moldau: Run, topic: str) -> None:
        lines = "\n".join(json.dumps({"value": str(n), "partition": 0, "timestamp": 1000 + n}) for n in range(10))
        succeed(moldau("produce", topic, "--format", "json", stdin=lines))

        def values(*arguments: str) -> str:
            return succeed(moldau("consume", topic, "-p", "0", *arguments)).replace("\n", "")

        assert values() == "0123456789"
        assert values("--from", "7") == "789"
        assert values("--from", "-2") == "89"
        assert values("--from", "@1006") == "6789"
        assert values("--from", "@9999") == ""
        assert values("--from", "@1970-01-01T00:00:01.008Z") == "89"
        assert values("--until", "3") == "012"
        assert values("--until", "@1004") == "0123"
        assert values("--from", "2", "--until", "-6") == "23"
        assert values("--from", "2", "-n", "3") == "234"
        assert values("--read-committed", "-n", "1") == "0"
        assert succeed(moldau("consume", topic, "-p", "1")) == ""

    def test_bad_records_fail_with_their_line(self, moldau: Run, topic: str) -> None:
        fail(moldau("produce", topic, "-k", ":", stdin="a:1\nb\nc:3\n"), 1, "1 of 2 records failed", "line 2", "':'")
        fail(moldau("produce", topic, "--format", "json", stdin="{"), 1, "line 1", "not JSON")
        fail(moldau("produce", topic, "--format", "hex", stdin="xx\n"), 1, "line 1", "not hex")
        wrong = '{"value": "a", "partition": 0}\n{"value": "b", "partition": 77}\n'
        fail(moldau("produce", topic, "--format", "json", stdin=wrong), 1, "1 of 2 records failed", "partition")

    def test_a_record_beyond_the_limit_fails_with_the_reason(self, moldau: Run, topic: str) -> None:
        succeed(moldau("topic", "alter", topic, "--set", "max.message.bytes=1000"))
        fail(moldau("produce", topic, stdin="x" * 5000), 1, "1 of 1 records failed", "MESSAGE_TOO_LARGE")

    def test_mistakes(self, moldau: Run, topic: str) -> None:
        fail(moldau("produce", topic, "-p", "9"), 1, "no partition 9", "it has 2")
        fail(moldau("consume", "cli-none"), 1, "no topic 'cli-none'")
        fail(moldau("consume", topic, "-p", "9"), 1, "no partition 9")
        fail(moldau("consume", topic, "--from", "5"), 1, "offset 5 is outside partition 0")


class TestLongRunning:
    def test_follow_sees_later_records_and_ends_with_ctrl_c(self, bootstrap: str, moldau: Run, topic: str) -> None:
        process = start(bootstrap, "consume", topic, "--follow")
        assert process.stdout is not None
        for word in ("first", "second"):
            succeed(moldau("produce", topic, stdin=f"{word}\n"))
            assert process.stdout.readline() == f"{word}\n"
        assert interrupt(process) == (130, "", "")

    def test_a_reader_that_leaves_ends_it_silently(self, bootstrap: str, moldau: Run, topic: str) -> None:
        succeed(moldau("produce", topic, stdin="line\n" * 20_000))
        process = start(bootstrap, "consume", topic, "--follow")
        assert process.stdout is not None
        assert process.stdout.readline() == "line\n"
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""

    def test_ctrl_c_delivers_what_was_typed(self, bootstrap: str, moldau: Run, topic: str) -> None:
        process = start(bootstrap, "produce", topic, "-o", "json")
        assert process.stdin is not None
        process.stdin.write("a\nb\n")
        process.stdin.flush()
        eventually(lambda: sorted(succeed(moldau("consume", topic)).split()) == ["a", "b"], "both are written")
        exit_code, out, said = interrupt(process)
        assert exit_code == 130
        assert out.count("offset") == 2
        assert said == ""

    def test_delete_asks_on_a_terminal(self, bootstrap: str, moldau: Run, topic: str) -> None:
        assert "Delete" in on_terminal(bootstrap, ["topic", "delete", topic], "n\n")
        assert topic in succeed(moldau("topic", "list"))
        assert f"Deleted {topic}" in on_terminal(bootstrap, ["topic", "delete", topic], "y\n")

    def test_a_terminal_is_told_how_to_end_its_input(self, bootstrap: str, topic: str) -> None:
        assert "Ctrl-D" in on_terminal(bootstrap, ["produce", topic], "hello\n\x04")

    def test_perf_counts_every_record(self, moldau: Run, topic: str) -> None:
        wrote = json.loads(succeed(moldau("perf", "produce", topic, "--records", "5000", "--size", "50", "--json")))
        assert (wrote["records"], wrote["bytes"]) == (5000, 250_000)
        latency = wrote["latency_ms"]
        assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]
        read = json.loads(succeed(moldau("perf", "consume", topic, "--records", "5000", "-o", "json")))
        assert (read["records"], read["bytes"]) == (5000, 250_000)
        assert "records/s" in succeed(moldau("perf", "produce", topic, "-n", "100", "--rate", "1000", "--acks", "1"))

    def test_perf_mistakes(self, moldau: Run, topic: str) -> None:
        fail(moldau("perf", "consume", "cli-none"), 1, "no topic 'cli-none'")


class TestTheCommandItself:
    def test_version_and_help(self, moldau: Run) -> None:
        assert succeed(moldau("--version")).startswith("moldau ")
        helped = succeed(moldau())
        for command in ("up", "broker", "topic", "produce", "consume", "perf"):
            assert command in helped
        assert max(len(line) for line in helped.splitlines()) <= 80

    def test_an_unreachable_broker(self, moldau: Run) -> None:
        fail(moldau("topic", "list", "-b", "127.0.0.1:1"), 1, "127.0.0.1:1", "moldau up")
        fail(moldau("-b", "nowhere.invalid:9092", "consume", "x"), 1, "nowhere.invalid:9092")

    def test_options_hold_before_and_after_the_command(self, bootstrap: str, moldau: Run) -> None:
        for line in (
            ("-b", bootstrap, "-o", "json", "topic", "list"),
            ("topic", "list", "-b", bootstrap, "-o", "json"),
        ):
            assert isinstance(json.loads(succeed(moldau(*line))), list)

    def test_mistakes(self, moldau: Run) -> None:
        fail(moldau("topic", "list", "-X", "nope=1"), 2, "nope")

    def test_the_shell_completes_commands_and_topics(self, bootstrap: str, topic: str) -> None:
        assert "consume" in complete(bootstrap, "moldau con")
        assert "--partitions" in complete(bootstrap, "moldau topic create --part")
        assert topic in complete(bootstrap, f"moldau consume {topic[:8]}")


def java_murmur2(data: bytes) -> int:
    """Kafka's murmur2, written down independently of librdkafka's."""
    mixer, mask = 0x5BD1E995, 0xFFFFFFFF
    state = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for start_at in range(0, whole, 4):
        word = int.from_bytes(data[start_at : start_at + 4], "little") * mixer & mask
        word = (word ^ (word >> 24)) * mixer & mask
        state = (state * mixer & mask) ^ word
    if whole < len(data):
        state = (state ^ int.from_bytes(data[whole:], "little")) * mixer & mask
    state = (state ^ (state >> 13)) * mixer & mask
    return state ^ (state >> 15)
