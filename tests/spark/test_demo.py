"""`make demo`: a first result comes, and Ctrl-C ends all of it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

ROOT = Path(__file__).parents[2]


def test_the_demo(python_path: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": python_path, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    said = []
    with process:
        for line in process.stdout:
            said.append(line)
            if line.startswith("First result after"):
                process.send_signal(signal.SIGINT)
    text = "".join(said)
    assert process.returncode == 0, text
    assert re.search(r"[\d,]+ orders sent in \d+ s; first result after [\d.]+ s; \d+ Parquet file", text), text
    assert re.search(r"bread .* \d+ .* [\d,]+\.\d\d", text), text
    assert "Traceback" not in text
    assert not [each for each in tmp_path.iterdir() if each.name.startswith("moldau-demo")], "nothing is left"


def test_a_wrong_flag() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--secs", "x"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 2
    assert "unrecognized arguments" in done.stderr
