"""Where to begin, as people write it."""

import pytest

from moldau.tools.common.failure import CommandError
from moldau.tools.pipeline.show import read_start, show_age

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("LATEST", "latest"),
        ("10m ago", str(NOW_MS - 600_000)),
        ("2026-01-31T12:00:00Z", "1769860800000"),
    ],
)
def test_places_to_begin(text: str, start: str) -> None:
    assert read_start(text, NOW_MS) == start


@pytest.mark.parametrize("text", ["", "ago", "yesterday", "@1"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(CommandError, match=r"--from .* is not a position\. Give earliest") as refused:
        read_start(text, NOW_MS)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("ago_ms", "text"), [(-5, "0s"), (59_999, "59s"), (60_000, "1m"), (7_300_000, "2h"), (10**9, "11d")]
)
def test_ages(ago_ms: int, text: str) -> None:
    assert show_age(NOW_MS - ago_ms, NOW_MS) == text
