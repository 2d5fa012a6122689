"""The programs under examples/, in the interpreter."""

import importlib.util
import sys
from typing import Any

import pytest

from moldau.streams import Streams
from support.repository.sources import ROOT

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def program(name: str) -> Streams:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    sys.modules[spec.name] = module  # dataclasses look for their annotations there
    spec.loader.exec_module(module)
    app: Streams = module.app
    return app


def order(user: str, amount: float, time: str) -> dict[str, Any]:
    return {"user": user, "amount": amount, "at": f"2026-11-18T{time}Z"}


def test_revenue_counts_late_orders_as_long_as_the_grace() -> None:
    test = program("revenue").test()
    test.send("users", "ann", {"name": "Ann", "country": "CZ"})
    for number, given in enumerate(
        (
            order("ann", 10, "10:00:10"),
            order("ann", 5, "10:01:20"),
            order("ann", 2, "10:00:59"),  # late, within the grace
            order("bob", 7, "10:01:21"),  # a user whom nobody knows
            order("ann", -5, "10:01:25"),
            order("ann", 1, "10:01:30"),
            order("ann", 4, "10:00:40"),  # too late
        )
    ):
        test.send("orders", str(number), given)
    totals = [(key[1].minute, row) for key, row in test.table("revenue-by-country").items()]
    assert sorted(totals) == [(0, {"total": 12.0, "orders": 2}), (1, {"total": 6.0, "orders": 2})]
    assert test.late == {"revenue": 1}


def test_visits_end_after_half_an_hour_and_broken_clicks_are_kept() -> None:
    test = program("visits").test()
    test.send("users", "ann", {"name": "Ann", "city": "Prague"})
    for time in ("10:00:00", "10:10:00", "10:45:00", "11:30:00"):
        test.send("clicks", None, {"user": "ann", "page": "/", "at": f"2026-11-18T{time}Z", "seconds": 2.5})
    test.send("clicks", None, b'{"user": "ann", "at": "2026-11-18T11:31:00Z"}')
    visits = test.read("visits")
    assert [(each.key, each.value["pages"], each.value["name"]) for each in visits] == [
        ("ann", 2, "Ann"),
        ("ann", 1, "Ann"),
    ]
    (letter,) = test.read("broken-clicks")
    assert dict(letter.headers)["moldau.reason"] == b"page: no value, and it must have one"


def test_fraud_is_alerted_once_and_closed_when_the_card_is_quiet() -> None:
    test = program("fraud").test()
    used = (
        ("1234", "10:00:40"),
        ("1234", "10:00:50"),
        ("1234", "10:01:10"),
        ("1234", "10:01:20"),
        ("1234", "10:01:30"),
    )
    for card, time in used:
        test.send("payments", card, {"amount": 9.5, "shop": "a"}, timestamp=f"2026-11-18T{time}Z")
    test.send("payments", "5678", {"amount": 1500, "shop": "b"}, timestamp="2026-11-18T10:06:29Z")
    test.send("payments", "5678", {"amount": 1, "shop": "b"}, timestamp="2026-11-18T10:06:30Z")
    assert [(each.key, each.value) for each in test.read("alerts")] == [
        ("1234", {"kind": "opened", "payments": 4, "total": 38.0}),
        ("5678", {"kind": "opened", "payments": 1, "total": 1500.0}),
        ("1234", {"kind": "closed", "payments": 0, "total": 0.0}),
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_can_be_described(name: str) -> None:
    app = program(name)
    assert f"query {app.name}-" in app.describe()
    assert app.svg().startswith("<svg")
