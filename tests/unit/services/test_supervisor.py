"""The supervisor with programs that stand for the services' process."""

import sys

from moldau.services.supervisor import Supervisor, explain, how_ended
from support.eventually import eventually

LISTENS = 'print(\'{"service": "registry", "url": "http://localhost:1"}\', flush=True)\n'
WAITS = "import sys\nsys.stdin.read()\n"


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)


def supervise(program: str, said: Said) -> Supervisor:
    supervisor = Supervisor("{}", said, command=(sys.executable, "-c", program), first_pause_s=0.05)
    supervisor.start()
    return supervisor


def test_it_says_where_services_listen_and_stops_them() -> None:
    said = Said()
    supervisor = supervise(LISTENS + WAITS, said)
    eventually(lambda: said.lines, "it says where the service listens")
    assert said.lines == ["  Schema registry at http://localhost:1"]
    assert supervisor.pid is not None
    supervisor.stop()
    assert supervisor.pid is None
    assert len(said.lines) == 1


def test_a_process_that_dies_is_started_again_with_growing_pauses() -> None:
    said = Said()
    supervisor = supervise("raise SystemExit(7)", said)
    eventually(lambda: len(said.lines) >= 3, "it is started again")
    supervisor.stop()
    again = "The services' process has ended with exit code 7; starting it again in"
    assert said.lines[:3] == [f"{again} 0.05 s.", f"{again} 0.1 s.", f"{again} 0.2 s."]


def test_a_process_that_was_asked_to_stop_or_cannot_listen_is_not() -> None:
    for code in (0, 3):
        said = Said()
        supervisor = supervise(f"raise SystemExit({code})", said)
        eventually(lambda s=supervisor: not s._thread.is_alive(), "the supervisor ends")  # type: ignore[misc]
        supervisor.stop()
        assert said.lines == []


def test_stopping_before_it_starts() -> None:
    said = Said()
    supervisor = Supervisor("{}", said, command=(sys.executable, "-c", WAITS))
    supervisor.stop()
    supervisor.start()
    supervisor.stop()
    assert supervisor.pid is None


def test_lines_that_are_no_json_are_said_as_they_are() -> None:
    assert explain(b"Traceback\n") == "Traceback"
    assert explain(b'{"problem": "No."}') == "No."
    assert how_ended(-9) == "was ended by SIGKILL"
