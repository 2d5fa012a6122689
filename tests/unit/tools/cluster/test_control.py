"""How `cluster restart` finds the `cluster up` of a directory, and what a failed start leaves."""

import threading
from pathlib import Path

import pytest

from moldau.tools.cluster.control import BrokerState, claim, read_state, remove_if_unused, restart
from moldau.tools.common.failure import CommandError


def test_a_directory_is_for_one_cluster(tmp_path: Path) -> None:
    with claim(tmp_path), pytest.raises(CommandError, match="another moldau cluster up uses"), claim(tmp_path):
        pass
    with claim(tmp_path):
        pass


def test_without_a_running_cluster_there_is_nothing_to_restart(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=f"no moldau cluster up runs in {tmp_path}"):
        restart(tmp_path, 1, 1.0)
    with claim(tmp_path) as control:
        control.publish([BrokerState(1, 5, 1, True)])
    with pytest.raises(CommandError, match="no moldau cluster up runs"):
        read_state(tmp_path)


def test_a_cluster_that_is_still_starting(tmp_path: Path) -> None:
    with claim(tmp_path), pytest.raises(CommandError, match="still starting"):
        read_state(tmp_path)


@pytest.mark.parametrize("problem", ["", "has ended with exit code 1"])
def test_a_request_is_answered_through_the_state(tmp_path: Path, problem: str) -> None:
    with claim(tmp_path) as control:
        control.publish([BrokerState(1, 5, 1, True), BrokerState(2, None, 1, False)])
        taken: list[int] = []

        def serve() -> None:
            while not taken:
                taken.extend(control.requests())
            control.publish([BrokerState(1, 5, 1, True), BrokerState(2, 7, 2, not problem, problem)])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            if problem:
                with pytest.raises(CommandError, match=f"broker 2 {problem}"):
                    restart(tmp_path, 2, 10.0)
            else:
                assert restart(tmp_path, 2, 10.0).pid == 7
        finally:
            thread.join()
        assert (taken, control.requests()) == ([2], [])
        with pytest.raises(CommandError, match="no broker 9"):
            restart(tmp_path, 9, 1.0)


def test_what_a_failed_start_leaves_is_removed_unless_it_holds_something(tmp_path: Path) -> None:
    used, unused = tmp_path / "used", tmp_path / "unused"
    for directory in (used, unused):
        (directory / "zookeeper" / "server-1").mkdir(parents=True)
        (directory / "zookeeper" / ".lock").touch()
        (directory / "up.lock").touch()
    (used / "broker-1.log").touch()
    remove_if_unused(used)
    remove_if_unused(unused)
    assert (used.exists(), unused.exists()) == (True, False)
