"""A scenario script: commands, and under each, indented, what came of it.

    # A member without an id is given one and joins again with it (KIP-394).
    join a
        a <- JoinGroup error_code=MEMBER_ID_REQUIRED member_id=a-1
    join a member=a-1 session=20000

A command is a verb, words and options; `#` begins a comment. `run_script` plays the commands on a fresh table of verbs
and compares. With MOLDAU_RECORD=1 in the environment it writes what came instead: read the difference before you
commit it.
"""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
INDENT = "    "


@dataclass(frozen=True)
class Command:
    verb: str
    words: tuple[str, ...]
    options: Mapping[str, str]

    @classmethod
    def of(cls, line: str) -> "Command":
        verb, *rest = shlex.split(line, comments=True)
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        return cls(verb, tuple(word for word in rest if "=" not in word), options)


Verb = Callable[[Command], list[str]]  # plays a command, and says what came of it


def scripts(folder: str) -> list[Path]:
    """The scripts in a folder beside this file, for pytest to parametrize with: `ids=lambda path: path.stem`."""
    return sorted((HERE / folder).glob("*.txt"))


def run_script(path: Path, verbs: Mapping[str, Verb]) -> None:
    recorded = path.read_text()
    played = "".join(f"{line}\n" for line in _play(recorded.splitlines(), verbs))
    if os.environ.get("MOLDAU_RECORD") == "1":
        path.write_text(played)
    else:
        assert played == recorded, f"{path.name} goes another way; MOLDAU_RECORD=1 records it"


def _play(lines: list[str], verbs: Mapping[str, Verb]) -> Iterator[str]:
    for line in lines:
        if line.startswith(INDENT):
            continue  # what was recorded
        yield line
        if line and not line.startswith("#"):
            command = Command.of(line)
            yield from (f"{INDENT}{each}" for each in verbs[command.verb](command))
