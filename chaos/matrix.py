"""The long matrix of `make chaos`: every fault by itself, mixes of all, and the table of docs/reliability.md."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from chaos.checker import FINDERS, counts
from chaos.faults import ANYWHERE, FAULTS
from chaos.run import Outcome, Plan
from chaos.workloads.table import available

PAGE = Path("docs/reliability.md")
BEGIN, END = "<!-- matrix -->", "<!-- /matrix -->"
MIXES = 6
MIX_ROUNDS = 12


def plans(seed: int, rounds: int, system: str = "moldau", *, quick: bool = False) -> Iterator[Plan]:
    """One run per fault, and mixes of all; everybody works in each."""
    faults = ANYWHERE if system == "apache" else list(FAULTS)
    everybody = available()
    for number, fault in enumerate(faults):
        yield Plan(seed + number, [fault], everybody, 1 if quick else rounds, system=system)
    for number in range(1 if quick else MIXES):
        yield Plan(seed + 1000 + number, faults, everybody, rounds if quick else MIX_ROUNDS, system=system)


def title(plan: Plan) -> str:
    return plan.faults[0] if len(plan.faults) == 1 else "all mixed"


def rows(outcomes: Iterable[Outcome]) -> list[list[str]]:
    """Per fault, in the order of its first run: runs, times, records sent, acknowledged, read, commits, anomalies."""
    sums: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        row = sums.setdefault(title(outcome.plan), Counter())
        row.update(
            runs=1, faults=len(outcome.done), sent=outcome.sent, acked=outcome.acked, read=outcome.read,
            committed=outcome.committed, anomalies=len(outcome.anomalies), stopped=bool(outcome.trouble),
        )  # fmt: skip
    total: Counter[str] = Counter()
    for row in sums.values():
        total.update(row)
    return [[name, *(f"{row[column]:,}" for column in COLUMNS)] for name, row in (*sums.items(), ("in all", total))]


COLUMNS = ("runs", "faults", "sent", "acked", "read", "committed", "anomalies", "stopped")
HEADINGS = (
    "fault", "runs", "times", "records sent", "acknowledged", "read", "offsets committed", "anomalies", "did not end",
)  # fmt: skip


def page_table(outcomes: list[Outcome]) -> str:
    """Markdown, and below it how many of each anomaly."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---|" + "--:|" * (len(HEADINGS) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows(outcomes)]
    found = counts([each for outcome in outcomes for each in outcome.anomalies])
    assert found.keys() == FINDERS.keys()
    lines += ["", "Of each anomaly: " + ", ".join(f"{kind} {number}" for kind, number in found.items()) + "."]
    return "\n".join(lines)


def publish(outcomes: list[Outcome], page: Path = PAGE) -> None:
    """Into the page, between its two marks."""
    text = page.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n\n{page_table(outcomes)}\n\n{END}{tail}")
