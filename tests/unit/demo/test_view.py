"""The live view of the demo."""

import time
from typing import cast

from rich.console import Console

from demo.__main__ import Shown
from demo.generator import Orders


class Sent:
    sent = 123_456


def test_the_status_is_one_line_whatever_the_width_of_the_table() -> None:
    shown = Shown(time.monotonic() - 100, cast(Orders, Sent()), first_s=12.3)
    shown.take({"from": "2026-01-01T00:00:00Z", "product": "tea", "orders": 3, "revenue": "9.5"})
    console = Console(width=80, force_terminal=False)
    with console.capture() as capture:
        console.print(shown.view())
    lines = capture.get().splitlines()
    assert lines[0].rstrip() == shown.headline()
    assert lines[-1].rstrip() == "Ctrl-C ends it"
