"""Client properties from files: `-X @FILE`, and `--profile NAME` for files that only their owner can read.

Passwords belong there: an argument is seen by everyone who can list processes.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from moldau.base.properties import MalformedProperties, read_properties
from moldau.security.jaas import read_jaas
from moldau.tools.common.failure import misused

FILE_MARK = "@"
SUFFIX = ".properties"
JAAS = "sasl.jaas.config"
# librdkafka has no JAAS strings: options of a login module → its properties.
FROM_JAAS = {"username": "sasl.username", "password": "sasl.password"}


def expand(properties: Iterable[str]) -> list[str]:
    """KEY=VALUE texts, with `@FILE` replaced by the properties of the file."""
    return [pair for text in properties for pair in ([text] if text[:1] != FILE_MARK else _read(Path(text[1:])))]


def profile(name: str) -> list[str]:
    """The properties of a profile, as KEY=VALUE texts."""
    if not name or os.sep in name or name.startswith("."):
        raise misused(f"--profile {name!r} is not a name")
    path = directory() / f"{name}{SUFFIX}"
    try:
        mode = path.stat().st_mode
    except OSError:
        raise misused(f"there is no profile {name!r}", remedy=f"Write its properties to {path}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise misused(f"profile {path} can be read by others", remedy=f"Protect it with: chmod 600 {path}")
    return _read(path)


def directory() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "moldau"


def _read(path: Path) -> list[str]:
    try:
        found = dict(read_properties(path.read_text(), str(path)))
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise misused(f"cannot read {path}: {why}") from None
    except MalformedProperties as problem:
        raise misused(f"{path}: {problem}") from None
    if text := found.pop(JAAS, ""):
        login = read_jaas(text)
        if isinstance(login, str):
            raise misused(f"{path}: {JAAS} must {login}")
        found |= {ours: login.options[name] for name, ours in FROM_JAAS.items() if name in login.options}
    return [f"{name}={value}" for name, value in found.items()]
