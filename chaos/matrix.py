"""The matrix of `make chaos`: a run per kind of fault, mixes of all, and the tables of docs/reliability.md."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from chaos.checker import counts
from chaos.faults import ANYWHERE, FAULTS, SORTS
from chaos.run import Outcome, Plan
from chaos.workloads.table import CLIENTS, available

PAGE = Path("docs/reliability.md")
BEGIN, END = "<!-- matrix -->", "<!-- /matrix -->"
COLUMNS = {
    "times": "times",
    "moved": "leaders moved",
    "behind": "partitions out of sync",
    "sent": "records sent",
    "acked": "acknowledged",
    "read": "read",
    "committed": "offsets committed",
}
SILENCE = "longest silence, s"
CLIENT_COLUMNS = {
    "sent": "records sent",
    "acked": "acknowledged",
    "read": "read",
    "errors": "errors that passed",
    "refused": "surely not written",
    "hard": "hard errors",
}
REST = "before the first"


def plans(seed: int, repeat: int, mixes: int, system: str = "moldau", *, security: bool = False) -> Iterator[Plan]:
    """A run per kind of fault, with each fault `repeat` times, and mixes of all; every run has all clients."""
    known, clients = ANYWHERE if system == "apache" else list(FAULTS), available()
    for number, sort in enumerate(SORTS.values()):
        faults = [fault for fault in sort if fault in known]
        if faults:
            yield Plan(seed + number, faults, clients, repeat * len(faults), system=system, security=security)
    for number in range(mixes):
        yield Plan(seed + 100 + number, known, clients, len(known), system=system, security=security)


def rows(outcomes: Iterable[Outcome]) -> list[list[str]]:
    """Counts per fault, from its start to the start of the next one, in the order of the table; and totals."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    silence: dict[str, float] = defaultdict(float)
    for outcome in outcomes:
        for fault, counted in outcome.by_fault.items():
            sums[fault or REST].update(counted)
        for fault, seconds in outcome.silence_s.items():
            silence[fault or REST] = max(silence[fault or REST], seconds)
    order = [fault for fault in (*FAULTS, REST) if fault in sums]
    total = sum(sums.values(), Counter())
    named = [(fault, sums[fault], silence[fault]) for fault in order]
    named.append(("in all", total, max(silence.values(), default=0.0)))
    return [[name, *(f"{row[column]:,}" for column in COLUMNS), f"{quiet:.1f}"] for name, row, quiet in named]


HEADINGS = ("fault", *COLUMNS.values(), SILENCE)
CLIENT_HEADINGS = ("client", "sorts of faults", "faults", *CLIENT_COLUMNS.values())
EACH_HEADINGS = ("acknowledged", *CLIENTS)


def client_rows(outcomes: list[Outcome]) -> list[list[str]]:
    """Per client: the faults after which it made progress, and its counts."""
    found = []
    for client, workloads in CLIENTS.items():
        met = [fault for outcome in outcomes if {*workloads} & {*outcome.plan.workloads} for fault in outcome.done]
        total = sum((outcome.by_client[client] for outcome in outcomes), Counter())
        found.append([client, f"{len(set(met))}", f"{len(met)}", *(f"{total[column]:,}" for column in CLIENT_COLUMNS)])
    return found


def each_rows(outcomes: list[Outcome]) -> list[list[str]]:
    """Per fault: acknowledged records of each client, from its start to the start of the next one."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        for fault, counted in outcome.by_fault.items():
            sums[fault].update(counted)
    return [[fault, *(f"{sums[fault][client]:,}" for client in CLIENTS)] for fault in FAULTS if fault in sums]


def verdict(outcomes: list[Outcome]) -> str:
    """Number of runs, and of anomalies of each kind."""
    found = counts([each for outcome in outcomes for each in outcome.anomalies])
    stuck = sum(bool(outcome.trouble) for outcome in outcomes)
    kinds = ", ".join(f"{kind} {number}" for kind, number in found.items())
    return f"{len(outcomes)} runs, of which {stuck} did not finish. Anomalies: {kinds}."


TABLES: dict[str, tuple[tuple[str, ...], Callable[[list[Outcome]], list[list[str]]]]] = {
    "": (HEADINGS, rows),
    "What the clients went through:": (CLIENT_HEADINGS, client_rows),
    "And each of them in each fault:": (EACH_HEADINGS, each_rows),
}


def page_tables(outcomes: list[Outcome]) -> str:
    lines = []
    for title, (headings, make) in TABLES.items():
        lines += [title, ""] if title else []
        lines += ["| " + " | ".join(headings) + " |", "|---|" + "--:|" * (len(headings) - 1)]
        lines += ["| " + " | ".join(row) + " |" for row in make(outcomes)]
        lines.append("")
    return "\n".join((*lines, verdict(outcomes)))


def publish(outcomes: list[Outcome], page: Path = PAGE) -> None:
    """Write the tables into the page, between its two marks."""
    text = page.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n\n{page_tables(outcomes)}\n\n{END}{tail}")
