"""Values of --restart, and the lines about failures in the status."""

import pytest

from moldau.spark.pipelines.restarts import RestartPolicy
from moldau.spark.pipelines.status import PipelineState, PipelineStatus
from moldau.tools.common.failure import CommandError
from moldau.tools.pipeline.restart import ATTEMPT, Attempt, read_restart, take_attempt
from moldau.tools.pipeline.show import status_lines

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "delay", "policy"),
    [
        ("no", "5s", None),
        ("on-failure", "5s", RestartPolicy(5, 5.0)),
        ("on-failure:0", "1m", RestartPolicy(0, 60.0)),
        ("on-failure:12", "PT1S", RestartPolicy(12, 1.0)),
    ],
)
def test_policies(text: str, delay: str, policy: RestartPolicy | None) -> None:
    assert read_restart(text, delay) == policy


@pytest.mark.parametrize(
    ("text", "delay", "words"),
    [
        ("always", "5s", "--restart 'always' is not a policy"),
        ("on-failure:-1", "5s", "on-failure:N"),
        ("no", "5", "'5'"),
    ],
)
def test_what_is_none(text: str, delay: str, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        read_restart(text, delay)


def test_what_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert take_attempt() is None
    monkeypatch.setenv(ATTEMPT, '{"failures": 2, "last_failure": "x", "start": "latest", "locks": [7, 8]}')
    assert take_attempt() == Attempt(2, "x", "latest", (7, 8))
    assert take_attempt() is None, "processes that it starts are no restarts"


def test_lines_about_failures() -> None:
    waits = PipelineStatus(
        "orders",
        "f",
        1,
        "local",
        1,
        PipelineState.RETRYING,
        failures=2,
        last_failure="query q failed: no broker",
        next_try_ms=NOW_MS + 8500,
    )
    assert status_lines([waits], NOW_MS) == [
        "orders: failed 2 times in a row, next try in 8s; the last time: query q failed: no broker"
    ]
    again = PipelineStatus("orders", "f", 1, "local", 1, PipelineState.RUNNING, failures=1, last_failure="no broker")
    assert status_lines([again], NOW_MS) == ["orders: failed once and was started again; the last time: no broker"]
