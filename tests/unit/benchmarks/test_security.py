"""The benchmark with security: its table, its ACLs, the ratios of costs, and logins on a real secured broker."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import frames, logins, report, security, stats
from benchmarks.peers import Moldau
from benchmarks.secured import (
    ACLS,
    PRINCIPAL,
    SASL,
    SASL_AUTHENTICATION_FAILED,
    SASL_PLAINTEXT,
    SASL_SSL,
    PeerEndpoints,
    acls,
    make_files,
    running_secured,
)
from moldau.client.admin.acls import Authorization
from moldau.security.acls import Operation, ResourceType

HERE = "127.0.0.1"


def test_every_measure_has_its_workload_and_can_be_chosen_by_prefix() -> None:
    assert {measure.workload for measure in security.MEASURES} == {workload.name for workload in security.WORKLOADS}
    assert len({measure.title for measure in security.MEASURES}) == len(security.MEASURES)
    assert [measure.name for measure in security.chosen(["login-p"])] == ["login-plaintext", "cpu-login-plaintext"]
    assert security.chosen(["no such"]) == []


def test_a_few_of_the_acls_matter() -> None:
    bindings = acls()
    assert len(bindings) == len(set(bindings)) == ACLS
    index = Authorization(enabled=True, acls=tuple(bindings)).index()
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    assert index.allowed(PRINCIPAL, HERE, Operation.WRITE, topic, "bench-1")
    assert index.allowed(PRINCIPAL, HERE, Operation.READ, topic, "bench-1")
    assert index.allowed(PRINCIPAL, HERE, Operation.READ, group, "bench")
    assert not index.allowed(PRINCIPAL, "10.0.0.7", Operation.READ, topic, "bench-1")
    assert not index.allowed(PRINCIPAL, HERE, Operation.READ, topic, "orders-1")


def taken(**rates: float) -> dict[str, dict[str, list[dict[str, float]]]]:
    return {
        name.replace("_", "-"): {
            label: [{"records_per_s": rate, "cpu_us_per_record": 100 / rate}] * 2 for label in ("ours", "theirs")
        }
        for name, rate in rates.items()
    }


def test_a_cost_is_the_ratio_of_two_workloads_of_one_side_and_only_ours_has_a_floor() -> None:
    rows = security.costs(taken(produce_secured=90.0, produce_tls=100.0))
    assert [(row["broker"], row["unit"], row["reached"]) for row in rows] == [
        ("ours", "records/s", False),
        ("ours", "µs", None),
        ("theirs", "records/s", None),
        ("theirs", "µs", None),
    ]
    assert [round(row["ratio"], 3) for row in rows] == [0.9, 1.111, 0.9, 1.111]
    assert (rows[0]["with"]["median"], rows[0]["without"]["median"]) == (90.0, 100.0)
    assert security.costs(taken(produce_secured=90.0)) == []


@pytest.mark.parametrize("theirs", ["Apache Kafka 4.3.1", None])
def test_the_report_shows_every_measure_and_cost(theirs: str | None) -> None:
    labels = ("ours", "theirs") if theirs else ("ours",)
    found = taken(
        **{f"{what}_{how}": 1.0 for what in ("produce", "consume") for how in ("plaintext", "tls", "secured")}
    )
    results: dict[str, Any] = {
        "ours": "Moldau 0.1.0",
        "theirs": theirs,
        "rounds": 2,
        "consumer": "confluent-kafka",
        "scram": {"mechanism": "SCRAM-SHA-256", "iterations": 4096},
        "ciphers": dict.fromkeys(labels, "TLSv1.3"),
        "measures": [
            stats.summarise(measure, {label: [{measure.figure: 1.0}] for label in labels})
            for measure in security.MEASURES
        ],
        "costs": security.costs({name: {label: rounds[label] for label in labels} for name, rounds in found.items()}),
    }
    console = Console(file=io.StringIO(), width=250)
    report.show_security(results, console)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert all(measure.title in printed for measure in security.MEASURES)
    assert all(cost.title in printed for cost in security.COSTS)
    assert "≥ 0.95" in printed


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerEndpoints]:
    directory: Path = tmp_path_factory.mktemp("secured")
    with running_secured(Moldau(), make_files(directory / "files"), directory, "test") as broker:
        yield broker


@pytest.mark.parametrize("protocol", [SASL_SSL, SASL_PLAINTEXT])
def test_logins_are_real_and_counted(secured: PeerEndpoints, protocol: str) -> None:
    endpoint = secured.endpoints[protocol]
    with endpoint.connect() as connection, pytest.raises(frames.RefusedError) as refused:
        logins.log_in(connection, replace(SASL, password="wrong"))
    assert refused.value.error == SASL_AUTHENTICATION_FAILED
    found = logins.log_in_repeatedly(
        {
            "host": endpoint.address[0], "port": endpoint.port, "pid": secured.peer.pid, "tls": endpoint.tls,
            "mechanism": SASL.mechanism, "username": SASL.username, "password": SASL.password,
            "processes": 2, "warm_up_s": 0.1, "seconds": 0.5,
        }
    )  # fmt: skip
    assert found["logins"] > 0
    assert found["per_s"] == pytest.approx(found["logins"] / 0.5)
    assert found["cpu_ms"] > 0
    assert found["client_cpu_ms"] > 0


def test_the_cipher_of_a_connection_is_told(secured: PeerEndpoints) -> None:
    with secured.endpoints[SASL_SSL].connect() as connection:
        assert connection.cipher.startswith("TLSv1.")
