"""`make test` runs failed tests once more: what passes then is flaky, everything else fails as pytest says it does."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FLAKY = """
    from pathlib import Path

    def test_passes_the_second_time():
        print("what it printed")
        seen = Path("seen")
        first = not seen.exists()
        seen.touch()
        assert not first, "the first time"
"""
PASSES = "def test_passes(): pass"
FAILS = "def test_fails(): assert 0, 'always'"
OPTIONS = "--import-mode=importlib -p xdist -p no:cacheprovider"
RunTests = Callable[..., subprocess.CompletedProcess[str]]


def command(directory: Path, **files: str) -> list[str]:
    for name, text in files.items():
        (directory / f"test_{name}.py").write_text(textwrap.dedent(text))
    (directory / "pytest.ini").write_text(f"[pytest]\naddopts = {OPTIONS}")
    return [sys.executable, "-m", "tests.support.rerun", *(f"test_{name}.py" for name in files)]


def environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return inherited | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@pytest.fixture
def run_tests(tmp_path: Path) -> RunTests:
    """Run the tests of these files; `workers` is the number of processes."""

    def run(workers: int = 0, **files: str) -> subprocess.CompletedProcess[str]:
        arguments = [*command(tmp_path, **files), "-n", str(workers)]
        return subprocess.run(
            arguments, cwd=tmp_path, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    return run


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.splitlines()[-1]


def test_nothing_is_added_when_all_pass(run_tests: RunTests) -> None:
    done = run_tests(passes=PASSES)
    assert done.returncode == 0
    assert re.match(r"=+ 1 passed in ", last_line(done))


def test_slowest_tests_are_listed(run_tests: RunTests) -> None:
    done = run_tests(slow="def test_slow(): __import__('time').sleep(0.02)")
    assert "slowest 10 durations" in done.stdout
    assert re.search(r"0\.0\ds call +test_slow.py::test_slow", done.stdout)


@pytest.mark.parametrize("workers", [0, 2])
def test_passing_the_second_time_is_flaky(run_tests: RunTests, tmp_path: Path, workers: int) -> None:
    done = run_tests(workers, flaky=FLAKY, passes=PASSES)
    assert done.returncode == 0, done.stdout
    assert "\nflaky: test_flaky.py::test_passes_the_second_time\n" in done.stdout
    assert re.match(r"=+ 2 passed, 1 flaky in ", last_line(done))
    (path,) = re.findall(r"Outputs of both runs: (\S+)", done.stdout)
    kept = (tmp_path / path).read_text()
    first, second = kept.split("===== second run: passed =====")
    assert "the first time" in first
    assert "what it printed" in first
    assert "what it printed" in second


@pytest.mark.parametrize("workers", [0, 2])
def test_failing_twice_fails(run_tests: RunTests, workers: int) -> None:
    done = run_tests(workers, flaky=FLAKY, fails=FAILS, passes=PASSES)
    assert done.returncode == 1
    assert "\nflaky: test_flaky.py::test_passes_the_second_time\n" in done.stdout
    assert "\nfailed twice: test_fails.py::test_fails\n" in done.stdout
    assert re.match(r"=+ 1 failed, 2 passed, 1 flaky in ", last_line(done))


def test_fixtures_and_parameters_count_as_their_test(run_tests: RunTests) -> None:
    done = run_tests(
        fixture="""
        from pathlib import Path
        import pytest

        @pytest.fixture
        def fragile():
            yield
            seen = Path("torn down")
            if not seen.exists():
                seen.touch()
                raise OSError("too early")

        @pytest.mark.parametrize("value", ["a::b [c]", "d"])
        def test_with(fragile, value): pass
        """
    )
    assert done.returncode == 0, done.stdout
    assert "\nflaky: test_fixture.py::test_with[a::b [c]]\n" in done.stdout
    assert re.match(r"=+ 2 passed, 1 flaky in ", last_line(done))


def test_skipping_the_second_time_is_no_pass(run_tests: RunTests) -> None:
    skips = FLAKY.replace("assert not first", "assert first or __import__('pytest').skip('gone'); assert not first")
    done = run_tests(skips=skips)
    assert done.returncode == 1
    assert "failed twice: test_skips.py::" in done.stdout


@pytest.mark.parametrize(
    ("files", "code", "reason"),
    [
        ({"imports": "import no_such_module"}, None, "no_such_module"),
        ({"interrupted": "def test_interrupted(): raise KeyboardInterrupt"}, None, None),
        ({"none": ""}, 5, "no tests ran"),
        (
            {f"many_{n}": f"def test_{n}(): assert 0" for n in range(10)},
            1,
            "The run is not repeated: tests failed in 11 files, and flaky ones are in 10 at most.",
        ),
    ],
    ids=["import fails", "interrupted", "no tests", "too many"],
)
def test_other_failures_stay_as_they_are(
    run_tests: RunTests, files: dict[str, str], code: int | None, reason: str | None
) -> None:
    done = run_tests(2, **files, flaky="" if code == 5 else FLAKY)
    assert done.returncode == code if code is not None else done.returncode in (1, 2), done.stdout
    assert reason is None or reason in done.stdout
    assert "once more" not in done.stdout
    assert "flaky: " not in done.stdout


def test_a_process_that_dies_has_failed_its_test(run_tests: RunTests) -> None:
    done = run_tests(2, dies="def test_dies(): __import__('os')._exit(0)", passes=PASSES)
    assert done.returncode == 1
    assert "\nfailed twice: test_dies.py::test_dies\n" in done.stdout
    assert re.match(r"=+ 1 failed, 1 passed in ", last_line(done))


STUCK = """
    import ctypes
    from pathlib import Path

    def test_a_call_into_c_that_no_signal_ends():
        seen = Path("seen")
        first = not seen.exists()
        seen.touch()
        ctypes.PyDLL(None).sleep(60 if first or {always} else 0)
"""


@pytest.mark.parametrize("always", [False, True], ids=["once", "always"])
def test_a_stuck_test_is_ended(run_tests: RunTests, monkeypatch: pytest.MonkeyPatch, always: bool) -> None:
    monkeypatch.setenv("MOLDAU_STUCK_S", "0.5")
    done = run_tests(2, stuck=STUCK.format(always=always), passes=PASSES)
    assert done.returncode == (1 if always else 0), done.stdout
    assert "in test_a_call_into_c_that_no_signal_ends" in done.stdout, "the stacks of its threads"
    verdict = "failed twice" if always else "flaky"
    assert f"\n{verdict}: test_stuck.py::test_a_call_into_c_that_no_signal_ends\n" in done.stdout
    assert "1 passed" in last_line(done) if always else "2 passed, 1 flaky" in last_line(done)


def test_a_run_without_reports_is_ended(run_tests: RunTests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLDAU_SILENT_S", "1")
    (tmp_path / "conftest.py").write_text("def pytest_sessionfinish(session): __import__('time').sleep(60)")
    done = run_tests(2, passes=PASSES)
    assert done.returncode == 1
    assert "No test ended for 1 s. Begun: none." in done.stdout
    assert "The run is not repeated: pytest stopped before all tests had run." in done.stdout


def test_a_process_that_ends_as_if_all_was_well(run_tests: RunTests) -> None:
    done = run_tests(dies="def test_dies(): __import__('os')._exit(0)")
    assert done.returncode == 1
    assert last_line(done) == "The run is not repeated: pytest ended before its summary."


def test_a_run_that_stopped_early_is_not_repeated(run_tests: RunTests, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("def pytest_configure(config): config.option.maxfail = 1")
    done = run_tests(flaky=FLAKY, passes=PASSES)
    assert done.returncode == 1
    assert "The run is not repeated: pytest stopped before all tests had run." in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_run(tmp_path: Path, number: int) -> None:
    text = "def test_waits(): print('waiting', flush=True); __import__('time').sleep(600)"
    arguments = command(tmp_path, passes=PASSES, waits=text)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {OPTIONS} --capture=no")
    with subprocess.Popen(
        arguments, cwd=tmp_path, env=environment(), text=True, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if "waiting" in line:
                    break
            if number == signal.SIGINT:
                os.killpg(process.pid, number)  # as a terminal does
            else:
                process.send_signal(number)
            told, _ = process.communicate(timeout=120)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == (2 if number == signal.SIGINT else 128 + signal.SIGTERM)
    assert ("1 passed" in told) == (number == signal.SIGINT)


def test_tests_of_a_background_job_can_interrupt_their_commands(tmp_path: Path) -> None:
    """A shell starts background jobs with SIGINT ignored, and children inherit that."""
    interrupts = """
        import signal, subprocess, sys

        def test_the_command_gets_the_default():
            code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
            assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "True"
    """
    arguments = command(tmp_path, interrupts=interrupts)
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *arguments], cwd=tmp_path, env=environment(), capture_output=True
    )
    assert done.returncode == 0, done.stdout.decode()
