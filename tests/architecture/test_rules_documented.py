"""docs/compatibility.md is up to date, and every message of a rule names the path."""

import pytest

from moldau.schemas.rules import Rule
from support.repository.sources import ROOT
from support.rules_page import SECTIONS, render


def test_the_page_of_rules_is_up_to_date() -> None:
    page = ROOT / "docs" / "compatibility.md"
    assert page.read_text() == render(), "docs/compatibility.md is out of date; run: make docs"


@pytest.mark.parametrize(
    "rule", [rule for _, rules, _ in SECTIONS for rule in rules.values()], ids=lambda rule: rule.id
)
def test_a_rule_names_the_path(rule: Rule) -> None:
    assert rule.text.startswith("{path}: ")
