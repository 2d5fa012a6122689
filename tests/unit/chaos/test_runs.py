"""What decides a run, and the table that runs end in. The runs themselves are in tests/cluster."""

import random
import re
import threading
from pathlib import Path

import pytest

from chaos import matrix
from chaos.checker import FINDERS, Anomaly
from chaos.faults import ANYWHERE, FAULTS, SORTS, WHO
from chaos.history import Noted, Recorder
from chaos.run import Outcome, Plan, _order
from chaos.workloads import programs
from chaos.workloads.base import Setting, wait_until
from chaos.workloads.copy import Copy, Stuck
from chaos.workloads.table import WORKLOADS
from support.sources import ROOT

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
        "python -m chaos run --seed 7 --rounds 2 --rate 50 --fault kill-leader --workload plain --workload group"
    )


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
    second.by_fault["kill-leader"].update(times=1, sent=500, acked=500, read=900)
    second.by_fault["elect"].update(times=1, sent=10)
    second.by_fault[""].update(sent=7, acked=7)
    second.anomalies.append(Anomaly("unseen", "plain/0", "…"))
    rows = matrix.rows([first, second])
    assert rows[0] == ["kill-leader", "4", "1,500", "1,490", "2,900", "0"]
    assert [row[0] for row in rows] == ["kill-leader", "elect", matrix.REST, "in all"]
    assert rows[-1] == ["in all", "5", "1,517", "1,497", "2,900", "0"]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{matrix.BEGIN}\nold\n{matrix.END}\nafter\n")
    matrix.publish([first, second], page)
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("\nafter\n")
    assert "old" not in page.read_text()
    assert "2 runs" in page.read_text()
    assert "unseen 1" in page.read_text()


@pytest.mark.parametrize("kind", FINDERS)
def test_every_anomaly_is_on_the_page(kind: str) -> None:
    assert kind in PAGE


def test_every_fault_is_on_the_page() -> None:
    targets = "|".join(WHO)
    for fault in FAULTS:
        assert re.sub(rf"-({targets})$", "", fault) in PAGE, fault


def test_every_client_is_on_the_page() -> None:
    assert set(WORKLOADS) == {"plain", "idempotent", "aiokafka", "kafka-python", "java", "go", "copy", "group"}
    for word in ("librdkafka", "aiokafka", "kafka-python", "Java", "Go", "copier", "group"):
        assert word in PAGE


def test_lines_of_the_programs() -> None:
    told = (
        '{"timestamp":1,"name":"producer_send_success","topic":"t","partition":2,"offset":9,"key":null,"value":"1.17"}'
    )
    assert programs._java_line(told) == programs.Line(17, "1.17", 2, 9, "")
    told = '{"timestamp":1,"name":"producer_send_error","topic":"t","value":"1.3","exception":"E","message":"no"}'
    assert programs._java_line(told) == programs.Line(3, "1.3", None, -1, "no")
    assert programs._java_line('{"timestamp":1,"name":"startup_complete"}') is None
    assert programs._go_line('{"Number":4,"Partition":1,"Offset":7,"Error":""}') == programs.Line(4, "go.4", 1, 7, "")


def test_a_call_that_is_left_to_itself_tells_its_end() -> None:
    recorder = Recorder()
    copier = Copy("copier", Setting("", recorder, "source", 1, 1.0, 1), "target")
    wakes = threading.Event()

    def stuck() -> None:
        wakes.wait()
        raise ValueError("fenced")

    with pytest.raises(Stuck):
        copier._within(stuck, 0.01)
    assert recorder.events == []
    wakes.set()
    wait_until(lambda: bool(recorder.events), "its end")
    [event] = recorder.events
    assert isinstance(event, Noted)
    assert event.text == "the call that did not come back has: fenced"
    with pytest.raises(ValueError, match="fenced"):
        copier._within(stuck, 60.0)
    assert len(recorder.events) == 1
