"""The long matrix of `make chaos`: faults of each sort, mixes of all, and the table of docs/reliability.md."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from chaos.checker import counts
from chaos.faults import ANYWHERE, FAULTS, SORTS
from chaos.run import Outcome, Plan
from chaos.workloads.table import available

PAGE = Path("docs/reliability.md")
BEGIN, END = "<!-- matrix -->", "<!-- /matrix -->"
COLUMNS = {
    "times": "times",
    "sent": "records sent",
    "acked": "acknowledged",
    "read": "read",
    "committed": "offsets committed",
}
REST = "before the first"


def plans(seed: int, repeat: int, mixes: int, system: str = "moldau") -> Iterator[Plan]:
    """A run per sort of fault, with each of it `repeat` times, and mixes of all; every client works in each."""
    known, everybody = ANYWHERE if system == "apache" else list(FAULTS), available()
    for number, sort in enumerate(SORTS.values()):
        faults = [fault for fault in sort if fault in known]
        if faults:
            yield Plan(seed + number, faults, everybody, repeat * len(faults), system=system)
    for number in range(mixes):
        yield Plan(seed + 100 + number, known, everybody, len(known), system=system)


def rows(outcomes: Iterable[Outcome]) -> list[list[str]]:
    """Per fault what was done from its beginning to that of the next, in the order of the table; and in all."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        for fault, counted in outcome.by_fault.items():
            sums[fault or REST].update(counted)
    order = [fault for fault in (*FAULTS, REST) if fault in sums]
    total = sum(sums.values(), Counter())
    named = [(fault, sums[fault]) for fault in order]
    return [[name, *(f"{row[column]:,}" for column in COLUMNS)] for name, row in (*named, ("in all", total))]


HEADINGS = ("fault", *COLUMNS.values())


def verdict(outcomes: list[Outcome]) -> str:
    """How many runs, and of every anomaly how many."""
    found = counts([each for outcome in outcomes for each in outcome.anomalies])
    stuck = sum(bool(outcome.trouble) for outcome in outcomes)
    kinds = ", ".join(f"{kind} {number}" for kind, number in found.items())
    return f"{len(outcomes)} runs, of which {stuck} did not come to their end. Anomalies: {kinds}."


def page_table(outcomes: list[Outcome]) -> str:
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---|" + "--:|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row) + " |" for row in rows(outcomes)]
    return "\n".join((*lines, "", verdict(outcomes)))


def publish(outcomes: list[Outcome], page: Path = PAGE) -> None:
    """Into the page, between its two marks."""
    text = page.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n\n{page_table(outcomes)}\n\n{END}{tail}")
