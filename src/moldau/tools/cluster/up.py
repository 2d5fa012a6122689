"""`moldau cluster up`: ZooKeeper and brokers as child processes of one foreground command.

All files are in one directory: `zookeeper/`, `broker-1/` and so on, and the log of each broker, `broker-1.log`. A
second run on the same directory continues with its data. Brokers are stopped one after the other, so that each can hand
over its leadership, then ZooKeeper.
"""

import contextlib
import importlib.util
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import moldau
from moldau.ensemble.servers import INSTALL, DirectoryTaken, Ensemble, EnsembleFailed, Ports, Tuning
from moldau.tools.broker.launch import own_command
from moldau.tools.cluster.child import HOST, Child
from moldau.tools.cluster.control import Control, claim, remove_if_unused
from moldau.tools.common.failure import FAILED, INTERRUPTED, OK, CommandError, announce, misused, note, split_pair
from moldau.tools.common.output import counted
from moldau.tools.common.stops import StopAsked, Stops

DEFAULT_BROKERS = 3
DEFAULT_DIRECTORY = Path("cluster")
HIGHEST_PORT = 65535
PEER_PORTS, ELECTION_PORTS = 707, 1707  # from a ZooKeeper server's port to its others: 2181, 2888, 3888
WATCH_S = 0.5
# Settings that differ between brokers.
OWN = ("advertised.listeners", "broker.id", "listeners", "log.dir", "log.dirs", "node.id", "zookeeper.connect")
REMEDIES: dict[type[EnsembleFailed], str] = {
    DirectoryTaken: "Stop the other cluster, or give its --zookeeper-nodes, or another --dir",
}


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options of the command line."""

    directory: Path
    brokers: int | None
    port: int
    zookeeper_nodes: int
    zookeeper_port: int
    settings: tuple[str, ...] = ()


def run(options: UpOptions) -> int:
    """Run the cluster until it is stopped; returns the exit code."""
    with Stops() as stops:
        try:
            return _run(options, stops)
        except StopAsked:  # a second time, while it was stopping
            return INTERRUPTED


def _run(options: UpOptions, stops: Stops) -> int:
    count = _broker_count(options)
    settings = _settings(options)
    _check_zookeeper_nodes(options)
    _check_installed()
    _check_ports(options, count)
    is_new = not options.directory.exists()
    ensemble = _ensemble(options)
    children = [
        Child(options.directory, number, options.port + number - 1, count, ensemble.connect, settings)
        for number in range(1, count + 1)
    ]
    try:
        with claim(options.directory) as control:
            return _serve(options, children, ensemble, control, stops)
    except EnsembleFailed as problem:
        raise CommandError(str(problem), remedy=REMEDIES.get(type(problem), "")) from problem
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                remove_if_unused(options.directory)


def _serve(options: UpOptions, children: list[Child], ensemble: Ensemble, control: Control, stops: Stops) -> int:
    try:
        with stops.held():
            ensemble.launch()
        ensemble.wait_until_serving(ensemble.servers)
        with stops.held():
            for child in children:
                child.launch()
        for child in children:
            child.await_ready()
        _announce(options, children, ensemble)
        return _watch(options, children, control, stops)
    except StopAsked:
        note("Stopping.")
        return OK
    finally:
        _stop_all(children, ensemble, stops)


def _check_zookeeper_nodes(options: UpOptions) -> None:
    nodes = options.zookeeper_nodes
    if nodes % 2 == 0:
        raise misused(
            f"--zookeeper-nodes {nodes} survives no more failures than {nodes - 1}: a majority must run",
            remedy=f"Give an odd number: {nodes - 1} or {nodes + 1}",
        )


def _settings(options: UpOptions) -> dict[str, str]:
    settings = dict(split_pair(text, "--set") for text in options.settings)
    for name in settings:
        if name in OWN:
            raise misused(f"--set {name} would be the same for all brokers, and must differ")
    return settings


def _check_installed() -> None:
    """Say at once what every broker would write to its log."""
    if importlib.util.find_spec("kazoo") is None:
        raise CommandError(f"a cluster needs the package kazoo, which is not installed. Get it: {INSTALL}")


def _broker_count(options: UpOptions) -> int:
    try:
        numbers = [path.name.partition("-")[2] for path in options.directory.glob("broker-*") if path.is_dir()]
    except OSError as error:
        raise _unusable(options, error) from error
    before = max((int(number) for number in numbers if number.isdecimal()), default=0)
    wanted = options.brokers or before or DEFAULT_BROKERS
    if wanted < before:
        remedy = f"Decommission the last ones and remove their directories first, or give --brokers {before}"
        raise misused(f"{options.directory} has {before} brokers, and --brokers says {wanted}", remedy=remedy)
    return wanted


def _check_ports(options: UpOptions, count: int) -> None:
    """Say at once which port is taken, commonly by an earlier cluster that still runs."""
    ports = [options.port + number for number in range(count)]
    for server in _zookeeper_ports(options):
        ports += [server.client] if options.zookeeper_nodes == 1 else [server.client, server.peer, server.election]
    if max(ports) > HIGHEST_PORT:
        raise misused(f"port {max(ports)} is needed, and the highest is {HIGHEST_PORT}", remedy="Give lower ports")
    if len(set(ports)) < len(ports):
        raise misused("brokers and ZooKeeper would share a port", remedy="Give other --port or --zookeeper-port")
    for port in ports:
        with socket.socket() as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                link.bind((HOST, port))
            except OSError as error:
                option = "--port" if options.port <= port < options.port + count else "--zookeeper-port"
                remedy = f"Stop the broker or cluster that uses it, or choose other ports with {option}"
                reason = (error.strerror or str(error)).lower()
                raise CommandError(f"cannot listen on port {port}: {reason}", remedy=remedy) from error


def _zookeeper_ports(options: UpOptions) -> list[Ports]:
    first = options.zookeeper_port
    return [
        Ports(first + number, first + PEER_PORTS + number, first + ELECTION_PORTS + number)
        for number in range(options.zookeeper_nodes)
    ]


def _ensemble(options: UpOptions) -> Ensemble:
    try:
        options.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(options, error) from error
    return Ensemble(options.directory / "zookeeper", _zookeeper_ports(options), Tuning())


def _unusable(options: UpOptions, error: OSError) -> CommandError:
    return misused(f"cannot use --dir {options.directory}: {(error.strerror or str(error)).lower()}")


def _announce(options: UpOptions, children: list[Child], ensemble: Ensemble) -> None:
    command = own_command()
    ready = f"{counted(len(children), 'broker')} {'is' if len(children) == 1 else 'are'} ready."
    servers = ", ".join(f"localhost:{server.port} (process {server.pid})" for server in ensemble.servers)
    lines = [
        f"Moldau {moldau.__version__}: {ready}",
        *(f"  Broker {child.number}    {child.address}  process {child.pid}  log {child.log}" for child in children),
        f"  ZooKeeper   {servers}",
        f"  Data        {options.directory.resolve()}",
        "Try, in another terminal:",
        f"  {command} cluster describe -b {children[0].address}",
        f"  {command} {_restart_words(options, children[-1])}    starts a broker again",
        "Stop with Ctrl-C.",
    ]
    announce(lines)


def _restart_words(options: UpOptions, child: Child) -> str:
    directory = "" if options.directory == DEFAULT_DIRECTORY else f" --dir {options.directory}"
    return f"cluster restart {child.number}{directory}"


def _watch(options: UpOptions, children: list[Child], control: Control, stops: Stops) -> int:
    """Tell of brokers that end, and restart them on request; ends when none is left."""
    told: set[int] = set()
    control.publish([child.state(ready=True) for child in children])
    while True:
        for child in children:
            if child.ended is not None and child.number not in told:
                told.add(child.number)
                again = f"{own_command()} {_restart_words(options, child)}"
                note(f"Broker {child.number} {child.how_ended()}. Start it again, in another terminal: {again}")
                control.publish([each.state(ready=True) for each in children])
        if len(told) == len(children):
            note("No broker is left.")
            return FAILED
        for number in control.requests():
            for child in children:
                if child.number == number:
                    told.discard(number)
                    _restart(child, children, control, stops)
        time.sleep(WATCH_S)


def _restart(child: Child, children: list[Child], control: Control, stops: Stops) -> None:
    """Restart one broker. A failure goes to the command that asked for it."""
    note(f"Restarting broker {child.number}.")
    child.problem = ""
    try:
        child.stop()
        with stops.held():
            child.launch()
        control.publish([each.state(ready=each is not child) for each in children])
        child.await_ready(sum(each.pid is not None for each in children))
        note(f"Broker {child.number} is running again (process {child.pid}).")
    except CommandError as failed:
        child.problem = str(failed).removeprefix(f"broker {child.number} ")
    control.publish([each.state(ready=True) for each in children])


def _stop_all(children: list[Child], ensemble: Ensemble, stops: Stops) -> None:
    try:
        for child in children:
            child.stop()
    except StopAsked:  # a second time: kill
        note("Killing all that still run.")
    finally:
        stops.ignore()
        for child in children:
            child.kill()
        ensemble.stop()
