"""`moldau up` and `moldau broker`: from flags and a properties file to the settings that a node runs with.

No Typer here: a broker starts through this file alone. A line that the short parser below does not understand, help
and mistakes included, goes to the commands in `app`, which end in the same `start`.
"""

import contextlib
import gc
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import moldau
from moldau import compiled
from moldau.base.properties import MalformedProperties, Properties, read_properties
from moldau.tools.common.failure import announce as say
from moldau.tools.common.failure import misused, split_pair

if TYPE_CHECKING:
    from moldau.tools.broker.services import Services

UP_DIRECTORY = "data"
LOCK = ".lock"
UP_LISTEN = "localhost:9092"
# A broker for development: the first member of a group need not wait three seconds for others.
UP_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}

# Loading makes objects that stay, and collections would visit them again and again: a twentieth of a start.
NEW_OBJECTS_WHILE_LOADING = 50_000

# Flag → field of Launch; a command takes the flags of its row.
FLAGS = {
    "up": {
        "--dir": "directory",
        "--listen": "listen",
        "--zookeeper": "zookeeper",
        "--id": "number",
        "--set": "settings",
        "--services-config": "services_config",
        "--registry": "registry",
    },
    "broker": {"--dir": "directory", "--listen": "listen", "--config": "config", "--set": "settings"},
}
# Flags without a value.
SWITCHES = {"up": {"--no-services": ("services", False)}, "broker": {}}


@dataclass(frozen=True, slots=True)
class Launch:
    """The command line of a broker, unchecked."""

    command: str
    directory: str | None = None
    listen: str | None = None
    config: str | None = None
    settings: tuple[str, ...] = ()
    zookeeper: str | None = None
    number: str | None = None
    services: bool = True  # of `up`
    services_config: str | None = None
    registry: str | None = None


class Started(Protocol):
    """A node that is ready: its addresses for clients and its log directories."""

    @property
    def addresses(self) -> Sequence[str]: ...

    @property
    def directories(self) -> Sequence[str]: ...


def read_arguments(arguments: Sequence[str]) -> Launch | None:
    """The options of a plain `up` or `broker` line; None for any line that needs Typer."""
    if not arguments or arguments[0] not in FLAGS:
        return None
    flags, switches = FLAGS[arguments[0]], SWITCHES[arguments[0]]
    fields: dict[str, Any] = {}
    settings: list[str] = []
    rest = iter(arguments[1:])
    for argument in rest:
        if argument in switches:
            field, on = switches[argument]
            fields[field] = on
            continue
        flag, equals, value = argument.partition("=")
        if not equals:
            value = next(rest, "-")
        if flag not in flags or value.startswith("-"):
            return None
        if flags[flag] == "settings":
            settings.append(value)
        else:
            fields[flags[flag]] = value
    return Launch(arguments[0], settings=tuple(settings), **fields)


def start(launch: Launch) -> int:
    """Run the node in this process until it is stopped; returns the exit code."""
    properties = build_properties(launch)
    services = _services(launch, properties)
    collected_after = gc.get_threshold()
    gc.set_threshold(NEW_OBJECTS_WHILE_LOADING)
    from moldau.broker.node import run  # here, so that a mistake in the flags is reported before a broker is loaded

    gc.freeze()  # modules stay: no collection need visit them
    gc.set_threshold(*collected_after)

    new = [Path(name) for name in properties.get("log.dirs", "").split(",") if name and not Path(name).exists()]
    try:
        code = run(properties, _announcer(launch, services))
    finally:
        if services is not None:
            services.stop()
    for directory in new if code else ():
        _remove_if_unused(directory)
    return code


def _services(launch: Launch, properties: Properties) -> "Services | None":
    if launch.command != "up" or not launch.services:
        return None
    from moldau.tools.broker.services import Services  # here: `broker` has none

    return Services(launch, properties)


def _announcer(launch: Launch, services: "Services | None") -> "Callable[[Started], None] | None":
    if launch.command != "up":
        return None

    def announce_all(started: Started) -> None:
        announce(started)
        if services is not None:
            services.start(started.addresses[0])

    return announce_all


def _remove_if_unused(directory: Path) -> None:
    """Remove a directory that a failed start has created and left with nothing but its lock."""
    with contextlib.suppress(OSError):
        if [path.name for path in directory.iterdir()] == [LOCK]:
            (directory / LOCK).unlink()
            directory.rmdir()


def build_properties(launch: Launch) -> Properties:
    """Kafka's setting names and their values: --set wins over the other flags, and those over the file."""
    properties = Properties() if launch.config is None else read_properties_file(launch.config)
    is_up = launch.command == "up"
    if is_up:
        for name, value in UP_SETTINGS.items():
            properties[name] = value
    directory = launch.directory if launch.directory is not None else UP_DIRECTORY if is_up else None
    listen = launch.listen if launch.listen is not None else UP_LISTEN if is_up else None
    if directory is not None:
        if not directory:
            raise misused("--dir is empty", remedy="Name the directory for the broker's data")
        properties.pop("log.dir", None)
        properties["log.dirs"] = directory
    if listen is not None:
        properties["listeners"] = f"PLAINTEXT://{read_listen(listen)}"
    if launch.zookeeper is not None:
        if not launch.zookeeper.strip():
            raise misused("--zookeeper is empty", remedy="Name ZooKeeper's servers: --zookeeper localhost:2181")
        properties["zookeeper.connect"] = launch.zookeeper
    if launch.number is not None:
        properties["node.id"] = launch.number
    for text in launch.settings:
        name, value = split_pair(text, "--set")
        properties[name] = value
    return properties


def read_listen(text: str) -> str:
    """Check HOST:PORT. An empty host means every interface, and port 0 any free port."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not bracketed) or any(mark in host for mark in "/ ,@"):
        raise misused(f"--listen {text!r} is not of the form HOST:PORT", remedy="For example: --listen localhost:9092")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise misused(f"--listen {text!r}: {port!r} is not a port", remedy="Ports are 0 to 65535")
    return f"{host}:{int(port)}"


def read_properties_file(name: str) -> Properties:
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise misused(f"cannot read --config {name}: {reason}") from error
    return parse_properties(text, name)


def parse_properties(text: str, file: str = "the properties file") -> Properties:
    try:
        return read_properties(text, file)
    except MalformedProperties as problem:
        raise misused(f"{file} is malformed: {problem}") from None


def own_command() -> str:
    """This command as it can be typed elsewhere: by its name if the shell finds it, else as now."""
    name = Path(sys.argv[0]).name
    if name != "moldau":
        return f"{Path(sys.executable).name} -m moldau"
    return name if shutil.which(name) else sys.argv[0]


def announce(started: Started) -> None:
    """Print addresses, directories and first commands for `moldau up`."""
    address = started.addresses[0]
    option = "" if address == UP_LISTEN else f" -b {address}"
    command = own_command()
    lines = (
        f"Moldau {moldau.__version__} is ready ({compiled.describe()}).",
        f"  Broker   {', '.join(started.addresses)}",
        f"  Data     {', '.join(str(Path(name).resolve()) for name in started.directories)}",
        "Try, in another terminal:",
        f"  {command} topic create demo{option}",
        f"  echo hello | {command} produce demo{option}",
        f"  {command} consume demo{option}",
        "Stop with Ctrl-C.",
    )
    say(lines)
