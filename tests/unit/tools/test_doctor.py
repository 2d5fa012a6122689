"""What `moldau doctor` finds, and what it advises."""

import json
import sys
from pathlib import Path

import pytest

from moldau.client.admin.target import Target
from moldau.spark.java import Java, NoJava
from moldau.testing import Broker
from moldau.tools import doctor
from moldau.tools.doctor import Finding, State, look_at_brokers, look_at_spark, reach
from moldau.tools.main import run
from support.brokers.processes import free_port


@pytest.fixture(autouse=True)
def _own_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # a command puts its own there; this takes it back
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def have(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    monkeypatch.setattr(doctor, "installed", versions.get)


def test_without_spark_nothing_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch)
    (finding,) = look_at_spark()
    assert finding.state is State.NOTE
    assert "pip install '.[spark]'" in finding.advice


def test_all_is_there_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, pyspark="4.3.0", pyarrow="26.0.1", pandas="2.2", protobuf="7")
    monkeypatch.setattr(doctor, "find_java", lambda: Java(Path("/java"), 21, "JAVA_HOME"))
    findings = list(look_at_spark())
    assert all(finding.state is State.OK for finding in findings), findings
    assert findings[-1] == Finding("java", State.OK, "21 (from JAVA_HOME: /java)")


def test_what_is_wrong_with_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, pyspark="3.5.1", pyarrow="26.0.1", protobuf="7")
    monkeypatch.setattr(doctor, "find_java", lambda: NoJava("Spark needs Java, and none was found."))
    monkeypatch.setenv("PYSPARK_PYTHON", "/another/python")
    found = {finding.what: finding for finding in look_at_spark()}
    assert "needs PySpark 4.2 or later" in found["pyspark"].advice
    assert found["pandas"].state is State.WRONG
    assert found["java"].advice == "Spark needs Java, and none was found."
    assert found["PYSPARK_PYTHON"].state is State.NOTE


def test_addresses_that_lead_nowhere() -> None:
    assert reach("127.0.0.1", free_port()) == "cannot be reached: connection refused"
    assert reach("no-such-host.invalid", 9092) == "is unknown: the name has no address"


def test_no_broker_at_the_bootstrap_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--bootstrap", f"127.0.0.1:{free_port()}"]) == 1
    shown = capsys.readouterr().out
    assert "cannot be reached: connection refused" in shown
    assert "Start one with: moldau up" in shown


def test_a_broker_that_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        run(["doctor", "--bootstrap", broker.bootstrap_servers, "-o", "json"])
        assert "WARNING" not in broker.log_text()
    found = {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert found["bootstrap"]["state"] == found["cluster"]["state"] == "ok"
    (advertised,) = (finding for what, finding in found.items() if what.startswith("advertised by"))
    assert advertised["state"] == "ok"


def test_a_broker_that_advertises_an_address_nobody_reaches() -> None:
    bound, port = free_port(), free_port()
    listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{bound}"}
    with Broker(**listeners, **{"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}):
        findings = list(look_at_brokers(Target(f"127.0.0.1:{bound}")))
    assert findings[-1].state is State.WRONG
    assert f"127.0.0.1:{port}, which does not work from here: set its advertised.listeners" in findings[-1].advice
