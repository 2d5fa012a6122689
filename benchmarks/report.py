"""Reports of results: a table in the terminal, a JSON file, and the chart."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from benchmarks import chart, clients
from benchmarks.measures import CHECKS

RESULTS = Path("benchmarks/results/latest.json")
SPARK = Path("benchmarks/results/spark.json")
ISOLATION = Path("benchmarks/results/isolation.json")
COMPACTION = ISOLATION.with_name("compaction.json")
CLUSTER = ISOLATION.with_name("cluster.json")
SECURITY = ISOLATION.with_name("security.json")
SATURATION = ISOLATION.with_name("saturate.json")
SATURATION_AGAINST = ISOLATION.with_name("saturate-against.json")  # beside another source tree
CLIENTS = ISOLATION.with_name("clients.json")
TRIAL = Path("benchmarks/results/trial.json")  # quick runs, which must not replace measured figures
CHART = Path("docs/bench.svg")
VERDICTS = {True: "[green]reached", False: "[red]missed", None: "–"}


def show(results: dict[str, Any], console: Console) -> None:
    show_measures(results, console)
    console.print(f"Medians (least–most) of {results['rounds']} rounds. Consumer: {results['consumer']} (librdkafka).")
    console.print("Brokers that are not under load idle; they are not paused.")
    for name, checked in CHECKS.items():
        console.print(f"{name} checks {checked}.")


def show_spark(results: dict[str, Any], console: Console) -> None:
    show_measures(results, console)
    console.print(
        f"Medians (least–most) of {results['rounds']} warm rounds, {results['spark']['master']}, on a broker of ours. "
        "From time and CPU those of a job with as many rows but without Kafka, on the same Spark, are taken off. "
        "CPU and memory are those of driver, JVM and Python workers."
    )
    for failure in results["failures"]:
        console.print(failure, style="red", markup=False)


def show_measures(results: dict[str, Any], console: Console) -> None:
    theirs = results["theirs"]
    table = Table(title=f"{results['ours']} : {theirs}" if theirs else f"{results['ours']} alone")
    columns = ("measure", "unit", "ours", "theirs", "ratio", "range of ratios", "floor", "")
    for column in columns if theirs else columns[:3]:
        table.add_column(column, justify="left" if column in ("measure", "unit", "") else "right")
    for row in results["measures"]:
        cells = [row["title"], row["unit"], _side(row["ours"])]
        table.add_row(*cells, *(_against(row) if theirs else ()))
    console.print(table)


def show_security(results: dict[str, Any], console: Console) -> None:
    show_measures(results, console)
    table = Table(title="What security costs, on the same kind of broker")
    for column in ("what", "broker", "unit", "with", "without", "ratio", "range of ratios", "floor", ""):
        table.add_column(column, justify="left" if column in ("what", "broker", "unit", "") else "right")
    for row in results["costs"]:
        _, *ratios = _against({**row, "theirs": row["without"]})
        table.add_row(
            row["title"], row["broker"], row["unit"], _side(row["with"]), _side(row["without"]), *ratios
        )  # fmt: skip
    if results["costs"]:
        console.print(table)
    scram = results["scram"]
    console.print(
        f"Medians (least–most) of {results['rounds']} rounds. Consumer: {results['consumer']} (librdkafka). "
        f"Logins: {scram['mechanism']}, {scram['iterations']} iterations, password hashed once by the clients. "
        + " ".join(f"TLS of {label} with OpenSSL: {cipher}." for label, cipher in results["ciphers"].items())
    )


def _against(row: dict[str, Any]) -> tuple[str, ...]:
    if "ratio" not in row:
        return ("–",) * 5
    floor = "" if row["floor"] is None else f"{'≥' if row['better'] == 'higher' else '≤'} {row['floor']}"
    return (
        _side(row["theirs"]),
        f"[bold]{row['ratio']:.2f}",
        f"{row['ratio_least']:.2f}–{row['ratio_most']:.2f}",
        floor,
        VERDICTS[row["reached"]],
    )


def _side(values: dict[str, float] | None) -> str:
    if values is None:
        return "–"
    median, least, most = (chart.number(values[key]) for key in ("median", "least", "most"))
    return f"{median} ({least}–{most})"


def show_saturation(results: dict[str, Any], console: Console) -> None:
    """One line per measure and broker."""
    table = Table(title=f"One core of {results['ours']}" + (f" : {results['theirs']}" if results["theirs"] else ""))
    for column in ("measure", "unit", "broker"):
        table.add_column(column)
    for column in ("per second", "ratio", "CPU µs", "user+kernel", "its core", "load's core"):
        table.add_column(column, justify="right")
    table.add_column("")
    for row in results["measures"]:
        names = (row["title"], row["unit"].removesuffix("/s"))
        for label, shares in row["shares"].items():
            first = label == "ours"
            split = f"{shares['user']:.0%}+{shares['kernel']:.0%}"
            busy = (f"{shares[name]:.0%}" for name in ("broker_busy", "generator_busy"))
            table.add_row(
                *(names if first else ("", "")), label, _side(row[label]), _ratio(row) if first else "",
                chart.number(row["cpu"][label]["median"]), split, *busy, f"[red]{row['marks'][label]}",
            )  # fmt: skip
    console.print(table)
    console.print(f"Medians (least–most) of {results['rounds']} rounds. CPU is that of the broker for one of the unit.")
    for mark, says in results["legend"].items():
        if any(mark in marks for row in results["measures"] for marks in row["marks"].values()):
            console.print(f"[red]{mark}[/] {says}.")


def _ratio(row: dict[str, Any]) -> str:
    return f"[bold]{row['ratio']:.2f}[/] ({row['ratio_least']:.2f}–{row['ratio_most']:.2f})" if "ratio" in row else ""


def show_isolation(rows: list[dict[str, Any]], console: Console) -> None:
    if not rows:
        return
    table = Table(title="In isolation")
    for column in ("what", "alone or small", "disturbed or large", "unit", "ratio", "aim", "note"):
        table.add_column(column, justify="right" if "or" in column or column in ("ratio", "aim") else "left")
    for row in rows:
        figures = (chart.number(row["base"]), chart.number(row["other"]), row["unit"], f"[bold]{row['ratio']:.2f}")
        table.add_row(row["title"], *figures, row["aim"], row["note"])
    console.print(table)


def show_clients(rows: Sequence[clients.Row], console: Console) -> None:
    """Rates and CPU of each load, or latencies; ratios are Moldau's client to the others."""
    for load in dict.fromkeys(row.load for row in rows):
        alike = [row for row in rows if row.load == load]
        figures = ("p50_ms", "p99_ms") if load == clients.LATENCY else ("records_per_s", "cpu_us")
        table = Table("client", *(Column(name, justify="right") for figure in figures for name in (figure, "ratio")))
        ours = alike[0]
        for row in alike:
            cells = []
            for figure in figures:
                value, ratio = row.median(figure), ours.median(figure) / row.median(figure)
                cells += [chart.number(value), "" if row is ours else f"{ratio:.2f}"]
            table.add_row(row.client, *cells)
        table.title = load
        console.print(table)


def show_compaction(rows: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="Compaction: records per second of CPU time, and per second")
    for column in ("log", "ours", "Apache Kafka", "ratio", "ours/s", "Apache Kafka/s", "ratio/s"):
        table.add_column(column, justify="left" if column == "log" else "right")
    for row in rows:
        figures = []
        for name in ("records_per_cpu_s", "records_per_s"):
            ours, theirs = row["ours"][name], (row["theirs"] or {}).get(name)
            ratio = f"[bold]{ours / theirs:.2f}" if theirs else "–"
            figures += [f"{ours:,.0f}", f"{theirs:,.0f}" if theirs else "–", ratio]
        table.add_row(row["name"], *figures)
    console.print(table)


def save(results: dict[str, Any], path: Path = RESULTS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


def load(path: Path = RESULTS) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def save_chart(results: dict[str, Any], path: Path = CHART) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(chart.draw(results))
