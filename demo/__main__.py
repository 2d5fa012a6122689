"""The demo: python -m demo [--seconds N]. All of it is in a temporary folder, which is removed at the end.

The broker and the pipeline are processes of their own, as they would be anywhere; this one produces orders and shows
the records of the topic `revenue`.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.generator import TOPIC, Orders
from moldau import Consumer
from moldau.testing import Broker

PIPELINE = Path(__file__).with_name("orders.py")
RESULT = "revenue"
WINDOWS_SHOWN = 3
REFRESH_S = 1.0
STOP_S = 60.0
MEMORY = "700m"
QUIET = {"log_level": 0}  # the admin client would write into the table


@dataclass
class Shown:
    """The newest windows, and the progress of the demo."""

    begun: float
    orders: Orders
    first_s: float | None = None
    windows: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def take(self, row: dict[str, Any]) -> None:
        if self.first_s is None:
            self.first_s = time.monotonic() - self.begun
        self.windows.setdefault(row["from"], {})[row["product"]] = row
        for old in sorted(self.windows)[:-WINDOWS_SHOWN]:
            del self.windows[old]

    def take_all(self, results: Consumer[Any, dict[str, Any]], until: float) -> None:
        """What comes until then."""
        while (left := until - time.monotonic()) > 0 and (message := results.poll(left)) is not None:
            self.take(message.value)

    def headline(self) -> str:
        seconds = time.monotonic() - self.begun
        if self.first_s is None:
            return f"{self.orders.sent:,} orders sent; Spark is starting … {seconds:.0f} s"
        return f"{self.orders.sent:,} orders sent in {seconds:.0f} s; first result after {self.first_s:.1f} s"

    def view(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table()
        for name in ("TEN SECONDS FROM", "PRODUCT"):
            table.add_column(name)
        for name in ("ORDERS", "REVENUE"):
            table.add_column(name, justify="right")
        for start in sorted(self.windows, reverse=True):
            for product, row in sorted(self.windows[start].items()):
                table.add_row(start[11:19], product, f"{row['orders']:,}", f"{float(row['revenue']):,.2f}")
            table.add_section()
        # Above the table, not as its title: a title is wrapped to the width of the table.
        headline = Text(self.headline(), style="italic", no_wrap=True, overflow="ellipsis")
        return Group(headline, table, Text("Ctrl-C ends it", style="dim italic"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="Orders through a broker and Spark, live.")
    parser.add_argument("--seconds", type=float, default=None, help="end by itself, so long after the first result")
    wanted = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job inherits SIGINT as ignored
        signal.signal(number, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="moldau-demo-") as folder:
            print(run(Path(folder), wanted.seconds))
    except KeyboardInterrupt:
        print("Stopped before anything was there to see.")
    return 0


def run(folder: Path, seconds: float | None) -> str:
    """Run the demo; returns its summary."""
    begun = time.monotonic()
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(folder / "broker"))
        _create_topics(broker.bootstrap_servers)
        shown = Shown(begun, stack.enter_context(Orders(broker.bootstrap_servers)))
        pipeline = stack.enter_context(_pipeline(broker.bootstrap_servers, folder))
        print(f"Broker {broker.bootstrap_servers}, orders in the topic {TOPIC}, results in the topic {RESULT}")
        print(f"Pipeline {PIPELINE}, finished windows as Parquet in {folder / 'parquet'}", flush=True)
        try:
            _show(broker.bootstrap_servers, shown, pipeline, seconds)
        except KeyboardInterrupt:
            print("\nStopping …", flush=True)
        headline = shown.headline()
    files = len(list((folder / "parquet").glob("*.parquet")))
    return f"{headline}; {files} Parquet file(s) of finished windows. All is stopped and removed."


def _create_topics(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    created = admin.create_topics([NewTopic(TOPIC, num_partitions=2), NewTopic(RESULT, num_partitions=1)])
    for future in created.values():
        future.result(15)


@contextmanager
def _pipeline(bootstrap: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "moldau", "pipeline", "run", str(PIPELINE), "--bootstrap", bootstrap]
    command += ["--dir", str(folder), "--from", "earliest", "--master", "local[2]"]
    command += ["--conf", f"spark.driver.memory={MEMORY}", "--", str(folder / "parquet")]
    # A process group of its own: Ctrl-C is for the demo, which then stops things in order.
    process = subprocess.Popen(command, stderr=subprocess.PIPE, process_group=0)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _show(bootstrap: str, shown: Shown, pipeline: subprocess.Popen[bytes], seconds: float | None) -> None:
    from rich.live import Live

    told = False
    with Consumer(bootstrap, RESULT, value=dict[str, Any]) as consumer, Live(shown.view(), auto_refresh=False) as live:
        while not _is_over(shown, seconds):
            shown.take_all(consumer, time.monotonic() + REFRESH_S)
            if pipeline.poll() is not None:
                raise SystemExit(f"The pipeline has ended:\n{_said(pipeline)}")
            live.update(shown.view(), refresh=True)
            if shown.first_s is not None and not told and not sys.stdout.isatty():  # no table to look at
                print(f"First result after {shown.first_s:.1f} s", flush=True)
                told = True


def _said(pipeline: subprocess.Popen[bytes]) -> str:
    assert pipeline.stderr is not None
    return pipeline.stderr.read().decode(errors="replace").strip()


def _is_over(shown: Shown, seconds: float | None) -> bool:
    return (
        seconds is not None and shown.first_s is not None and (time.monotonic() - shown.begun) > shown.first_s + seconds
    )


if __name__ == "__main__":
    sys.exit(main())
