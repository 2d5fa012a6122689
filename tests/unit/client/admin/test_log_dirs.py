"""When a log directory counts as full, as filling up, and as offline."""

import pytest

from moldau.client.admin.log_dirs import LogDir


def log_dir(usable: int, total: int = 1 << 40, error: str = "") -> LogDir:
    return LogDir(1, "/data", error, total, usable, ())


@pytest.mark.parametrize(
    ("found", "problem", "low"),
    [
        (log_dir(1 << 39), "", False),
        (log_dir(1 << 30), "", True),
        (log_dir(1 << 20), "is full (1,048,576 bytes left)", False),
        (log_dir(0, 0), "is full (0 bytes left)", False),
        (log_dir(8 << 20, 12 << 20), "", False),
        (log_dir(-1, -1), "", False),
        (log_dir(-1, -1, "KAFKA_STORAGE_ERROR"), "is offline (KAFKA_STORAGE_ERROR)", False),
    ],
)
def test_states(found: LogDir, problem: str, low: bool) -> None:
    assert (problem in found.problem, bool(found.problem), found.is_low) == (True, bool(problem), low)
