"""Settings of Producer and Consumer: the cluster, and properties from mappings, files and profiles for librdkafka.

Precedence: an argument, then a property, then the default. Connects to nothing; imports librdkafka when a client is
built.
"""

import logging
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from moldau.base.properties import MalformedProperties, read_properties
from moldau.client.arguments import check_properties
from moldau.client.errors import InvalidUse, client_error
from moldau.client.java_properties import translate

DEFAULT_BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "MOLDAU_BOOTSTRAP"
PROFILE_VARIABLE = "MOLDAU_PROFILE"
BOOTSTRAP_PROPERTY = "bootstrap.servers"
PROFILE_SUFFIX = ".properties"
CLIENT_ID = "moldau"

# Functions that this library gives to librdkafka itself.
CALLBACKS = {
    "error_cb": "errors are raised, and logged by `logging`",
    "logger": "it logs by `logging`, as moldau.client.librdkafka",
    "on_commit": "use the consumer's commit",
    "on_delivery": "give on_delivery to send",
    "stats_cb": "give on_stats to the client",
}

Properties: TypeAlias = Mapping[str, object] | str | os.PathLike[str] | None

Client = TypeVar("Client")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """A cluster and how to connect to it: bootstrap addresses, and properties by librdkafka's names."""

    bootstrap: str
    properties: Mapping[str, object]

    def configuration(
        self, defaults: Mapping[str, object], given: Mapping[str, object | None], owned: Mapping[str, str]
    ) -> dict[str, object]:
        """librdkafka's configuration.

        `given` are arguments of the caller's; None means that there was no such argument. `owned` are properties that
        the client sets itself, with what to use instead.
        """
        for name in self.properties:
            if instead := owned.get(name) or CALLBACKS.get(name):
                raise InvalidUse(f"the property {name} cannot be set: {instead}")
        return {
            BOOTSTRAP_PROPERTY: self.bootstrap,
            "client.id": CLIENT_ID,
            "logger": LibraryLog(),
            **defaults,
            **self.properties,
            **{name: value for name, value in given.items() if value is not None},
        }


def read_settings(bootstrap: str | None, properties: Properties) -> ClientSettings:
    """Find the cluster; the environment counts only where the caller names none."""
    check_properties(properties)
    if bootstrap is None and properties is None and (name := os.environ.get(PROFILE_VARIABLE)):
        found = read_profile(name)
    elif properties is None:
        found = {}
    elif isinstance(properties, Mapping):
        found = translate(properties)
    else:
        found = read_property_file(Path(properties))
    named = found.pop(BOOTSTRAP_PROPERTY, None)
    if bootstrap is None:
        bootstrap = str(named) if named else os.environ.get(BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP)
    if not isinstance(bootstrap, str):
        raise InvalidUse(f'bootstrap={bootstrap!r}: give addresses as one text, such as "localhost:9092,other:9092"')
    if not bootstrap.strip(" ,"):
        raise InvalidUse("no broker address given: bootstrap is empty")
    return ClientSettings(bootstrap, found)


def read_property_file(path: Path) -> dict[str, object]:
    """The properties of a file, by librdkafka's names."""
    try:
        return translate(read_properties(path.read_text(), str(path)))
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise InvalidUse(f"cannot read {path}: {why}") from None
    except (MalformedProperties, InvalidUse) as problem:
        raise InvalidUse(f"{path}: {problem}") from None


def read_profile(name: str) -> dict[str, object]:
    """The properties of a profile, a file that only its owner can read; passwords belong there."""
    if not name or os.sep in name or name.startswith("."):
        raise InvalidUse(f"profile {name!r} is not a name")
    path = profile_directory() / f"{name}{PROFILE_SUFFIX}"
    try:
        mode = path.stat().st_mode
    except OSError:
        raise InvalidUse(f"there is no profile {name!r}. Write its properties to {path}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidUse(f"profile {path} can be read by others. Protect it with: chmod 600 {path}")
    return read_property_file(path)


def profile_directory() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "moldau"


def build(factory: Callable[[dict[str, object]], Client], configuration: dict[str, object]) -> Client:
    """A client of librdkafka's; a property that it does not know or take is `InvalidUse`."""
    from confluent_kafka import KafkaException

    try:
        return factory(configuration)
    except KafkaException as error:
        raise InvalidUse(client_error(error).problem) from error
    except (TypeError, ValueError) as error:
        raise InvalidUse(f"a property has a value that librdkafka does not take: {error}") from error


class LibraryLog:
    """librdkafka's log lines, as INFO at most: this library logs in its own words what needs attention."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("moldau.client.librdkafka")

    def log(self, level: int, text: str, *arguments: object) -> None:
        self._logger.log(min(level, logging.INFO), text, *arguments)
