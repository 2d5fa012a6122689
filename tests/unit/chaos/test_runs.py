"""What decides a run, and the table that runs end in. The runs themselves are in tests/cluster."""

import inspect
import random
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import aiokafka.errors
import kafka.errors
import pytest
from confluent_kafka import KafkaError

from chaos import faults, matrix
from chaos.access import Access, Login
from chaos.checker import FINDERS, Anomaly
from chaos.effects import Witness
from chaos.faults import ANYWHERE, FAULTS, LOST, SORTS, TARGETS, Scene
from chaos.history import Acked, Erred, Event, Failed, Noted, Placed, Polled, Recorder, Send, Struck
from chaos.run import Outcome, Plan, _order, count
from chaos.workloads import errors, group, programs
from chaos.workloads.abandoned import Stuck, within
from chaos.workloads.base import Setting, wait_until
from chaos.workloads.table import CLIENTS, WORKLOADS, available, cast_of
from moldau.store import zookeeper_session
from support.repository.sources import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text()


def test_a_seed_decides_the_faults() -> None:
    plan = Plan(17, list(FAULTS), ["plain"], rounds=50)
    assert _order(plan, random.Random(17)) == _order(plan, random.Random(17))
    assert _order(plan, random.Random(17)) != _order(plan, random.Random(18))


def test_every_fault_comes_once_before_any_comes_again() -> None:
    plan = Plan(1, list(FAULTS), ["plain"], rounds=2 * len(FAULTS))
    order = _order(plan, random.Random(1))
    assert set(order[: len(FAULTS)]) == set(order[len(FAULTS) :]) == set(FAULTS)


def test_the_command_repeats_a_run() -> None:
    plan = Plan(7, ["kill-leader"], ["plain", "group"], rounds=2, rate=50)
    assert plan.command == (
        'make chaos ARGS="run --seed 7 --rounds 2 --rate 50 --fault kill-leader --workload plain --workload group"'
    )
    assert Plan(7, [], [], security=True).command == 'make chaos ARGS="run --seed 7 --rounds 3 --rate 100 --security"'


def test_a_password_is_in_no_description_of_a_run() -> None:
    access = Access("broker:9092", Login("clients", "hush", Path("ca.pem")))
    assert "hush" not in repr(Setting(access, Recorder(), "t", 2, 1.0, 1))
    assert "hush" not in repr(access.direct)
    assert access.librdkafka["sasl.password"] == access.kafka_python["sasl_plain_password"] == "hush"


def test_clients_have_groups_and_transactional_ids_by_name() -> None:
    cast = cast_of(["idempotent", "copy", "group"], Access(""), Recorder(), 1, 1.0)
    assert {"reader-of-idempotent", "copier", "group-classic", "group-consumer", "nobody", "last"} <= {*cast.all_groups}
    assert cast.transactional_ids == ["copier"]


def test_the_matrix_has_every_fault_and_mixes() -> None:
    plans = list(matrix.plans(1, repeat=3, mixes=2))
    assert sorted(fault for sort in SORTS.values() for fault in sort) == sorted(FAULTS)
    assert [plan.faults for plan in plans[: len(SORTS)]] == list(SORTS.values())
    assert [plan.faults for plan in plans[len(SORTS) :]] == [list(FAULTS)] * 2
    assert len({plan.seed for plan in plans}) == len(plans)
    assert set(ANYWHERE) < set(FAULTS)


def test_a_complaint_tells_how_to_repeat_it() -> None:
    plan = Plan(7, ["kill-leader"], ["plain"])
    outcome = Outcome(plan, anomalies=[Anomaly("lost write", "plain/0", "plain.1 at 1 was never read, but 2 was")])
    assert not outcome.good
    assert plan.command in outcome.complaint
    assert "lost write in plain/0: plain.1 at 1 was never read, but 2 was" in outcome.complaint


def test_the_table_adds_up(tmp_path: Path) -> None:
    first, second = Outcome(Plan(1, ["kill-leader"], [])), Outcome(Plan(2, list(FAULTS), []))
    first.by_fault["kill-leader"].update(times=3, sent=1000, acked=990, read=2000)
    second.by_fault["kill-leader"].update(times=1, moved=9, behind=30, sent=500, acked=500, read=900)
    first.silence_s["kill-leader"], second.silence_s["kill-leader"], second.silence_s[""] = 0.25, 1.5, 0.1
    second.by_fault["elect"].update(times=1, sent=10)
    second.by_fault[""].update(sent=7, acked=7)
    second.anomalies.append(Anomaly("unseen", "plain/0", "…"))
    rows = matrix.rows([first, second])
    assert rows[0] == ["kill-leader", "4", "9", "30", "1,500", "1,490", "2,900", "0", "1.5"]
    assert [row[0] for row in rows] == ["kill-leader", "elect", matrix.REST, "in all"]
    assert rows[-1] == ["in all", "5", "9", "30", "1,517", "1,497", "2,900", "0", "1.5"]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{matrix.BEGIN}\nold\n{matrix.END}\nafter\n")
    matrix.publish([first, second], page)
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("\nafter\n")
    assert "old" not in page.read_text()
    assert "2 runs" in page.read_text()
    assert "unseen 1" in page.read_text()


def test_the_matrix_puts_every_client_through_every_fault() -> None:
    clients = {name for names in CLIENTS.values() for name in names}
    assert clients == set(WORKLOADS)
    for plan in matrix.plans(1, repeat=1, mixes=1):
        assert plan.workloads == available()
        assert set(_order(plan, random.Random(plan.seed))) == set(plan.faults)


def test_what_is_counted_of_faults_and_clients() -> None:
    events: list[Event] = [
        Send(0.0, "java", "java/0", "1.0"),
        Acked(1.0, "java", "java/0", "1.0", 0),
        Noted(1.5, "faults", "begin kill-leader"),
        Acked(2.0, "idempotent", "idempotent/0", "idempotent.0", 0),
        Failed(2.5, "plain", "plain/0", "plain.0", "timed out"),
        Failed(2.6, "direct", "direct/0", "direct.0", "NOT_ENOUGH_REPLICAS", True),
        Failed(2.7, "direct", "direct/0", "direct.1", "NOT_LEADER_OR_FOLLOWER"),
        Polled(3.0, "reader-of-java", "java/0", ((0, "1.0"),)),
        Erred(3.5, "reader-of-java", "no such thing", True),
        Struck(4.0, "faults", "kill-leader", 3, 9, False),
        Acked(7.0, "java", "java/0", "1.1", 1),
    ]
    outcome = Outcome(Plan(1, ["kill-leader"], ["plain", "direct", "java"]), done=["kill-leader", "kill-leader"])
    count(events, outcome)
    assert outcome.by_fault["kill-leader"]["moved"] == 3
    assert outcome.silence_s == {"": 0.0, "kill-leader": 5.0}
    rows = {row[0]: row[1:] for row in matrix.client_rows([outcome])}
    assert rows["confluent-kafka"] == ["1", "2", "0", "1", "0", "1", "0", "0"]
    assert rows["Java"] == ["1", "2", "1", "2", "1", "0", "0", "1"]
    assert rows["direct"] == ["1", "2", "0", "0", "0", "2", "1", "0"]
    assert rows["aiokafka"][:2] == ["0", "0"]
    assert matrix.each_rows([outcome]) == [["kill-leader", "1", "0", "0", "1", "0", "0"]]


class Told:
    """A cluster whose metadata are made by hand."""

    def __init__(self, leader: int, in_sync: tuple[int, ...]) -> None:
        self.leader, self.in_sync, self.gone = leader, in_sync, False

    def metadata(self) -> SimpleNamespace:
        if self.gone:
            raise ConnectionRefusedError
        row = SimpleNamespace(partition_index=0, leader_id=self.leader, isr_nodes=self.in_sync)
        other = SimpleNamespace(partition_index=0, leader_id=2, isr_nodes=(2,))
        topics = {"topic": row, "other": other}
        return SimpleNamespace(topics=[SimpleNamespace(name=name, partitions=[each]) for name, each in topics.items()])


def test_a_witness_sees_what_a_fault_does() -> None:
    cluster = Told(1, (1, 2, 3))
    witness = Witness(cluster, {"topic": 1}, [1, 2, 3])
    assert not witness.look()
    cluster.in_sync = (1, 3)
    assert witness.look()
    assert (witness.moved, witness.behind) == (set(), {("topic", 0)})
    cluster.leader, cluster.in_sync = 3, (1, 2, 3)
    assert witness.look()
    assert witness.moved == {("topic", 0)}
    cluster.gone = True
    assert not witness.silent
    assert witness.look()
    assert witness.silent


def test_a_long_fault_that_does_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "EFFECT_S", 0.0)
    cluster = Told(1, (1, 2, 3))
    scene = Scene(
        cluster, random.Random(1), {"topic": 1}, [], print, Witness(cluster, {"topic": 1}, [1, 2, 3]), Access("")
    )
    with pytest.raises(TimeoutError, match="had no effect"):
        scene.linger(strikes=True, long_s=0.0)
    cluster.leader = 2
    scene.linger(strikes=True, long_s=0.0)


def test_errors_that_pass_and_others() -> None:
    for code in (KafkaError._MSG_TIMED_OUT, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_MEMBER_ID):
        assert not errors.is_hard(KafkaError(code))
    for code in (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError._AUTO_OFFSET_RESET, KafkaError._FENCED):
        assert errors.is_hard(KafkaError(code))
    assert errors.is_hard(KafkaError(KafkaError._TIMED_OUT, "so", True))  # fatal
    assert not errors.is_hard_in_transaction(KafkaError(KafkaError._FENCED, "so", True))
    assert not errors.is_hard_in_python(aiokafka.errors.KafkaTimeoutError())
    assert not errors.is_hard_in_python(kafka.errors.NotLeaderForPartitionError())
    assert errors.is_hard_in_python(kafka.errors.OutOfOrderSequenceNumberError())
    assert errors.is_hard_in_python(kafka.errors.InvalidProducerEpochError())
    assert errors.is_hard_in_python(aiokafka.errors.OutOfOrderSequenceNumber())
    assert not errors.is_hard_in_java("class org.apache.kafka.common.errors.TimeoutException")
    assert errors.is_hard_in_java("class org.apache.kafka.common.errors.OutOfOrderSequenceException")


@pytest.mark.parametrize("kind", FINDERS)
def test_every_anomaly_is_on_the_page(kind: str) -> None:
    assert kind in PAGE


def test_every_fault_is_on_the_page() -> None:
    targets = "|".join(TARGETS)
    for fault in FAULTS:
        assert re.sub(rf"-({targets})$", "", fault) in PAGE, fault


def test_every_client_is_on_the_page() -> None:
    known = {"plain", "idempotent", "aiokafka", "kafka-python", "java", "go", "direct", "copy", "group"}
    assert set(WORKLOADS) == known
    for word in ("librdkafka", "aiokafka", "kafka-python", "Java", "Go", "direct", "copier", "group"):
        assert word in PAGE


def test_lines_of_the_programs() -> None:
    told = (
        '{"timestamp":1,"name":"producer_send_success","topic":"t","partition":2,"offset":9,"key":null,"value":"1.17"}'
    )
    assert programs._java_line(told) == programs.Line(17, "1.17", 2, 9, "")
    told = '{"timestamp":1,"name":"producer_send_error","topic":"t","value":"1.3","exception":"E","message":"no"}'
    assert programs._java_line(told) == programs.Line(3, "1.3", None, -1, "E: no", True)
    assert programs._java_line('{"timestamp":1,"name":"startup_complete"}') is None
    told = '{"Number":4,"Partition":1,"Offset":7,"Error":"","Hard":false}'
    assert programs._go_line(told) == programs.Line(4, "go.4", 1, 7, "")


def test_readers_that_are_programs() -> None:
    recorder = Recorder(clock=lambda: 0.0)
    setting = Setting(Access(""), recorder, "t", 2, 1.0, 1)
    java = programs.JavaReader("reader", setting, [])
    java.hear('{"name":"partitions_assigned","partitions":[{"topic":"t","partition":0}]}')
    java.hear('{"name":"record_data","key":null,"value":"1.17","topic":"t","partition":1,"offset":9}')
    java.hear('{"name":"offsets_committed","offsets":[],"success":false,"error":"timed out"}')
    assert java.has_read([0, 10])
    assert not java.has_read([1, 10])
    go = programs.GoReader("other", setting, [])
    go.hear('{"Partition":0,"Offset":3,"Value":"go.1","Error":"","Hard":false}')
    go.hear('{"Partition":0,"Offset":-1,"Value":"","Error":"NO_SUCH_THING","Hard":true}')
    assert recorder.events == [
        Placed(0.0, "reader", "t/0", -1),
        Placed(0.0, "reader", "t/1", -1),
        Polled(0.0, "reader", "t/1", ((9, "1.17"),)),
        Erred(0.0, "reader", "commit: timed out", False),
        Polled(0.0, "other", "t/0", ((3, "go.1"),)),
        Erred(0.0, "other", "NO_SUCH_THING", True),
    ]


def test_a_call_that_is_left_to_itself_tells_its_end() -> None:
    told: list[str] = []
    wakes = threading.Event()

    def stuck() -> None:
        wakes.wait()
        raise ValueError("fenced")

    with pytest.raises(Stuck):
        within(0.01, stuck, told.append)
    assert told == []
    wakes.set()
    wait_until(lambda: bool(told), "its end")
    assert told == ["the abandoned call returned: fenced"]
    with pytest.raises(ValueError, match="fenced"):
        within(60.0, stuck, told.append)
    assert within(60.0, lambda: 7, told.append) == 7
    assert len(told) == 1


def test_a_member_whose_commit_hangs_rejoins_as_another_member(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, joined, wakes = Recorder(), [], threading.Event()
    monkeypatch.setattr(group, "COMMIT_S", 0.01)

    class Message:
        def error(self) -> None: ...
        def topic(self) -> str:
            return "t"

        def partition(self) -> int:
            return 0

        def offset(self) -> int:
            return 7

        def value(self) -> bytes:
            return b"v"

    class Hanging:
        def __init__(self, settings: dict[str, object]) -> None:
            joined.append(self)

        def subscribe(self, topics: list[str], on_assign: object) -> None: ...
        def consume(self, count: int, timeout: float) -> list[Message]:
            if len(joined) == 2:
                member.stop()
                return []
            return [Message()]

        def commit(self, **asked: object) -> None:
            wakes.wait()

        def close(self) -> None:
            assert self is joined[1], "closing waits for the commit"

    monkeypatch.setattr(group, "Consumer", Hanging)
    member = group.Member("m", Setting(Access(""), recorder, "t", 1, 1.0, 1), "g", "classic")
    member.work()
    wakes.set()
    erred = [(event.error, event.hard) for event in recorder.events if isinstance(event, Erred)]
    assert erred == [("rejoins: a call did not return", False)]


def test_brokers_log_the_line_that_faults_wait_for() -> None:
    source = inspect.getsource(zookeeper_session)
    assert LOST in source, "chaos/faults.py counts this line in the logs of brokers"
