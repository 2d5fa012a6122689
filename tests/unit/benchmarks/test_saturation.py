"""The saturating load: every answer is counted and compared, on a real broker; and the rules of its comparison."""

import contextlib
import io
import os
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import frames, logins, report, saturate, saturation_load, topics
from benchmarks import saturation_measures as table
from benchmarks.frames import RefusedError
from benchmarks.measures import BATCH_RECORDS_100
from benchmarks.peers import Moldau, Peer
from benchmarks.saturation_load import IN_FLIGHT, IN_FLIGHT_BYTES, Load, Tape, tape, window_of
from benchmarks.topics import Topic
from moldau.testing import EnsembleMissing
from support.brokers.processes import AnyBroker, BrokerProcess

UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, CORRUPT_MESSAGE, OUT_OF_ORDER, NOT_LEADER_OR_FOLLOWER = 3, 100, 2, 45, 6
EVERY = {measure.name: measure for measure in table.MEASURES}
ON_ONE_BROKER = [measure.name for measure in table.MEASURES if not measure.has_own_brokers]
SOME_BYTES = 2_000_000


@pytest.fixture
def peer(broker: AnyBroker) -> Peer:
    if not isinstance(broker, BrokerProcess):
        pytest.skip("looks at the broker's process: unset MOLDAU_TEST_BOOTSTRAP")
    return Peer("test", Moldau(), broker.directory, broker.port)


@pytest.fixture
def target(peer: Peer) -> Topic:
    return topics.create(peer, table.CONNECTIONS)


@pytest.fixture(autouse=True)
def few_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FETCHES", 2)


def play(peer: Peer, tapes: list[Tape], seconds: float = 0.2) -> tuple[int, int]:
    """Answers that were counted, and bytes of frames that were sent."""
    with Load(peer.address, tapes) as sender:
        played = sender.play(seconds, SOME_BYTES)
        assert played.answers > 0
        return sender.drain(), sender.sent_bytes


def stored(peer: Peer, topic: Topic) -> int:
    """Offsets of all partitions."""
    with frames.Connection(peer.address) as connection:
        requests = [frames.fetch(topic.id, [(index, 0)], partition_bytes=1, wait_ms=0) for index in range(5)]
        return sum(frames.check_fetched(connection.ask(request)).high_watermark for request in requests)


@pytest.mark.parametrize("name", ON_ONE_BROKER)
def test_every_frame_has_its_answer(peer: Peer, target: Topic, name: str) -> None:
    with EVERY[name].prepare(peer, target) as tapes:
        answers, sent = play(peer, tapes)
        assert len(tapes) == table.CONNECTIONS
        assert answers * tapes[0].size == sent


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[saturate.Site]:
    pytest.importorskip("kazoo", reason="needs kazoo: pip install '.[cluster]'")
    with contextlib.ExitStack() as stack:
        site = saturate.own_site(EVERY["fetch-follower"], Moldau(), tmp_path, "test", lambda kind: kind)
        try:
            started = stack.enter_context(site)
        except EnsembleMissing as missing:
            pytest.skip(str(missing))
        yield started


def test_records_are_produced_over_tls(tmp_path: Path) -> None:
    measure = EVERY["produce-tls"]
    with (
        saturate.own_site(measure, Moldau(), tmp_path, "test", lambda kind: kind) as site,
        site.tapes() as tapes,
        Load(site.address, tapes, tls=site.tls) as sender,
    ):
        assert site.address != site.peer.address
        sender.play(0.2, SOME_BYTES)
        assert sender.drain() * tapes[0].size == sender.sent_bytes
        assert sender.answers > 0


def test_large_answers_are_not_read_over_tls(peer: Peer, target: Topic) -> None:
    with (
        EVERY["fetch-hot"].prepare(peer, target) as tapes,
        pytest.raises(ValueError, match="large answers are not read over TLS"),
        Load(peer.address, tapes, tls=logins.light_context()),
    ):
        pass


def test_fetches_in_the_place_of_a_stopped_follower_are_answered(leader: saturate.Site) -> None:
    with leader.tapes() as tapes:
        answers, sent = play(leader.peer, tapes)
        assert answers * tapes[0].size == sent


def test_fetches_of_a_follower_that_the_partition_does_not_have_are_refused(peer: Peer, target: Topic) -> None:
    with EVERY["fetch-follower"].prepare(peer, target) as tapes, pytest.raises(RefusedError) as refused:
        play(peer, tapes)
    assert refused.value.error == NOT_LEADER_OR_FOLLOWER


def test_as_many_requests_as_wanted_are_sent_and_answered(peer: Peer, target: Topic) -> None:
    with EVERY["produce-single"].prepare(peer, target) as tapes, Load(peer.address, tapes) as sender:
        sender.answer(700)
        sender.answer(3)
        assert sender.answers == 703 * len(tapes)
        assert sender.sent_bytes == 703 * sum(each.size for each in tapes)
    assert stored(peer, target) == 703 * len(tapes)


@pytest.mark.parametrize(("name", "spins"), [("fetch-hot", True), ("produce-100", False)])
def test_the_reader_of_large_answers_never_sleeps_and_counts_its_spinning_apart(
    peer: Peer, target: Topic, name: str, spins: bool
) -> None:
    with EVERY[name].prepare(peer, target) as tapes, Load(peer.address, tapes[:1]) as sender:
        used = time.process_time()
        played = sender.play(0.2, SOME_BYTES)
        used = time.process_time() - used
        sender.drain()
    assert (played.spun_s > 0) == spins
    assert played.sender_cpu_s > 0
    assert played.sender_cpu_s + played.spun_s <= used


@pytest.mark.parametrize("name", ["fetch-hot", "produce-100"])
def test_a_broker_that_stops_answering_is_noticed(
    peer: Peer, target: Topic, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saturation_load, "STALL_S", 0.1)
    monkeypatch.setattr(saturation_load, "POLL_S", 0.05)
    with (
        EVERY[name].prepare(peer, target) as tapes,
        socket.create_server(("127.0.0.1", 0)) as silent,
        Load(silent.getsockname(), tapes[:1]) as sender,
        pytest.raises(TimeoutError, match="no answer"),
    ):
        sender.play(5.0, SOME_BYTES)


@pytest.mark.parametrize("name", ["produce-100", "produce-single", "produce-compressed", "produce-idempotent"])
def test_all_records_that_were_counted_are_in_the_log(peer: Peer, target: Topic, name: str) -> None:
    with EVERY[name].prepare(peer, target) as tapes:
        answers, _ = play(peer, tapes)
    assert stored(peer, target) == answers * EVERY[name].per_answer


def test_sequences_go_on_when_a_tape_is_sent_again(peer: Peer, target: Topic) -> None:
    with EVERY["produce-idempotent"].prepare(peer, target) as tapes, Load(peer.address, tapes) as sender:
        while sender.sent_bytes < 3 * sum(len(tape.frames) for tape in tapes):
            sender.play(0.05, 1 << 40)
        answers = sender.drain()
    assert stored(peer, target) == answers * BATCH_RECORDS_100


def test_a_sequence_that_begins_again_is_refused(peer: Peer, target: Topic) -> None:
    with EVERY["produce-idempotent"].prepare(peer, target) as tapes:
        for each in tapes:
            each.renew = None
        with pytest.raises(RefusedError, match="error 45 instead of 0") as refused:
            play(peer, tapes, seconds=10)
    assert refused.value.error == OUT_OF_ORDER


@pytest.mark.parametrize("name", ["produce-100", "produce-single"])
def test_a_refused_produce_is_noticed(peer: Peer, target: Topic, name: str) -> None:
    missing = Topic(target.name, uuid.uuid4(), target.partitions)
    with EVERY[name].prepare(peer, missing) as tapes, pytest.raises(RefusedError) as refused:
        play(peer, tapes)
    assert refused.value.error == UNKNOWN_TOPIC_ID


def test_one_refused_batch_among_many_is_noticed(peer: Peer, target: Topic) -> None:
    with EVERY["produce-single"].prepare(peer, target) as tapes:
        tapes[3].frames[-10] ^= 1  # a byte of the last record
        with pytest.raises(RefusedError) as refused:
            play(peer, tapes, seconds=10)
    assert refused.value.error == CORRUPT_MESSAGE


def test_a_refused_fetch_is_noticed(peer: Peer, target: Topic) -> None:
    missing = Topic(target.name, uuid.uuid4(), target.partitions)
    tapes = table._reads(missing, size=1000, offsets=0, committed=False)
    with pytest.raises(RefusedError) as refused:
        play(peer, tapes)
    assert refused.value.error == UNKNOWN_TOPIC_ID


def test_a_fetch_that_gives_fewer_records_is_noticed(peer: Peer, target: Topic) -> None:
    topics.fill(peer, target, records=1, value_size=100, batch_records=1)
    tapes = table._reads(target, size=1000, offsets=0, committed=False)
    with pytest.raises(RefusedError, match="records"):
        play(peer, tapes)


def test_a_refused_commit_is_noticed(peer: Peer, target: Topic) -> None:
    missing = Topic(f"missing-{target.name}"[: len(target.name)], target.id, target.partitions)
    shape, fields = table._offsets_committed(missing)
    with pytest.raises(RefusedError) as refused:
        play(peer, [tape(shape, lambda offset: table._commit("group", missing, offset), fields)])
    assert refused.value.error == UNKNOWN_TOPIC


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], tuple[str, int]]]:
    """A peer that sends these bytes when it has read something, and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threads: list[threading.Thread] = []

        def start(answer: bytes) -> tuple[str, int]:
            def serve() -> None:
                with server.accept()[0] as connection:
                    connection.recv(1 << 20)
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 20):
                        pass

            threads.append(threading.Thread(target=serve))
            threads[-1].start()
            host, port = server.getsockname()
            return host, port

        yield start
        for thread in threads:
            thread.join()


def produced(correlation_id: int, error: int = 0) -> bytes:
    shape = table.PRODUCED
    return shape.head.pack(shape.size - 4, correlation_id, 2, 2, 0, error, 1, 0, 0)


@pytest.mark.parametrize(
    ("answer", "failure", "text"),
    [
        (produced(0) + produced(2), RefusedError, "correlation id 2 instead of 1"),
        (produced(0) + produced(0), RefusedError, "correlation id 0 instead of 1"),
        (produced(0) + produced(1, error=6), RefusedError, "error 6 instead of 0"),
        (produced(0) + b"\0\0\0\5\0\0\0\1\0", RefusedError, "size 5 instead of 62"),
        (produced(0) + produced(1), ConnectionError, "closed"),
        (produced(0) + produced(1)[:20], ConnectionError, "closed"),
    ],
)
def test_an_answer_that_is_not_the_next_one_is_noticed(
    answering: Callable[[bytes], tuple[str, int]], answer: bytes, failure: type[Exception], text: str
) -> None:
    request = frames.produce(uuid.uuid4(), [(0, frames.batch(1, 100))])
    made = tape(table.PRODUCED, lambda _: request, table._produced(0))
    with Load(answering(answer), [made]) as sender, pytest.raises(failure, match=text):
        sender.play(5.0, SOME_BYTES)


def test_a_tape_has_frames_of_one_size() -> None:
    with pytest.raises(ValueError, match="differ in size"):
        tape(table.PRODUCED, lambda number: bytes(100 + number), ())


def test_small_requests_are_in_flight_in_numbers_and_large_ones_as_clients_have_them() -> None:
    assert window_of(200, 60) == IN_FLIGHT_BYTES // 200
    assert window_of(64_000, 60) == IN_FLIGHT
    assert window_of(100, 1 << 20) == IN_FLIGHT


@pytest.mark.parametrize(
    ("rates", "is_steady"),
    [
        ([], False),
        ([10.0, 10.0], False),
        ([10.0, 10.0, 10.0], True),
        ([10.0, 9.0, 10.2], True),
        ([10.0, 10.0, 11.0], False),
        ([10.0, 11.0, 11.0], False),
        ([10.0, 11.0, 11.0, 11.3], True),
        ([10.0, 10.2, 10.4, 10.6, 10.8], True),
    ],
)
def test_a_broker_is_warm_when_two_slices_in_a_row_are_hardly_faster(rates: list[float], is_steady: bool) -> None:
    assert saturate.steady(rates) == is_steady


def figures(**changed: float) -> dict[str, float]:
    usual = {"broker_busy": 0.99, "broker_core_busy": 1.0, "generator_busy": 0.3, "generator_core_busy": 0.32}
    return {"per_s": 10.0, "cpu_us": 1.0, "user": 0.6, "kernel": 0.4} | usual | changed


@pytest.mark.parametrize(
    ("taken", "marks"),
    [
        (figures(), ""),
        (figures(generator_busy=0.95, generator_core_busy=0.95), "*"),
        (figures(broker_busy=0.5, broker_core_busy=0.5), "~"),
        (figures(broker_busy=0.92), "!"),
        (figures(generator_core_busy=0.4), "!"),
        (figures(generator_core_busy=0.95), "*!"),
    ],
)
def test_rows_that_need_a_second_look_are_marked(taken: dict[str, float], marks: str) -> None:
    assert saturate.marks([taken] * 3) == marks


@pytest.mark.parametrize("theirs", ["Apache Kafka 4.3.1", None])
def test_the_table_shows_both_brokers_and_explains_its_marks(theirs: str | None) -> None:
    rounds: dict[str, list[dict[str, float]]] = {"ours": [figures(per_s=20.0)] * 3}
    if theirs:
        rounds["theirs"] = [figures(broker_busy=0.5, broker_core_busy=0.5)] * 3
    results: dict[str, Any] = {"ours": "Moldau 0.1.0", "theirs": theirs, "rounds": 3, "legend": saturate.MARKS}
    results["measures"] = [saturate.summary(measure, rounds) for measure in table.MEASURES]
    console = Console(file=io.StringIO(), width=200)
    report.show_saturation(results, console)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert all(name in printed for name in EVERY)
    assert ("2.00 (2.00–2.00)" in printed) == (theirs is not None)
    assert (saturate.MARKS["~"] in printed) == (theirs is not None)
    assert saturate.MARKS["*"] not in printed


def test_measures_are_chosen_by_name() -> None:
    assert [measure.name for measure in table.chosen(["commits"])] == ["commits"]
    assert table.chosen([]) == list(table.MEASURES)
    assert table.chosen(["no such"]) == []


class Affinity:
    """A kind of broker that only says on which cores it may run."""

    name, version = "affinity", "1"

    def prepare(self, home: Path, port: int) -> None: ...

    def command(self, home: Path, port: int) -> list[str]:
        return ["sh", "-c", "grep Cpus_allowed_list /proc/self/status"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_pinned_broker_has_one_core_from_its_start(tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    command = saturate.Pinned(Affinity(), core).command(tmp_path, 1)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [
        "Cpus_allowed_list:",
        str(core),
    ]


@pytest.mark.parametrize(("allowed", "found"), [({3}, None), ({0, 1}, (0, 1)), ({2, 3, 5}, (2, 5))])
def test_broker_and_load_get_different_physical_cores_if_there_are(
    monkeypatch: pytest.MonkeyPatch, allowed: set[int], found: tuple[int, int] | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed, raising=False)
    monkeypatch.setattr(saturate, "_siblings", lambda core: {core, core ^ 1})
    cores = saturate.two_cores()
    assert (cores and (cores.broker, cores.generator)) == found
