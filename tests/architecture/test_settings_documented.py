"""Every setting has a description, and docs/settings.md is up to date."""

from pathlib import Path

from moldau.broker.settings import BROKER
from moldau.broker.settings_page import render
from moldau.log.settings import TOPIC

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_every_setting_has_a_sentence() -> None:
    for setting in (*TOPIC, *BROKER):
        assert setting.doc.endswith("."), f"{setting.name} has no sentence"
        assert setting.doc[0].isupper() or setting.doc[0] == "`", f"{setting.name}: {setting.doc}"


def test_the_page_is_up_to_date() -> None:
    command = "python -m moldau.broker.settings > docs/settings.md"
    assert PAGE.read_text() == render(), f"docs/settings.md is out of date; run: {command}"


def test_the_page_has_every_setting() -> None:
    page = PAGE.read_text()
    assert all(f"| `{setting.name}` |" in page for setting in (*TOPIC, *BROKER))
