"""`moldau zookeeper`: ZooKeeper servers on this machine, in the foreground. The work is in ensemble/servers.py."""

import time
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from moldau.ensemble.servers import DirectoryTaken, Ensemble, EnsembleFailed, Ports, PortTaken, Tuning
from moldau.tools.broker.launch import own_command
from moldau.tools.common.app import App
from moldau.tools.common.failure import OK, CommandError, announce, misused, note
from moldau.tools.common.stops import StopAsked, Stops

app = App()

DIRECTORY = "zookeeper"
PORT = 2181
# How far a server's other ports are from that for clients: 2888 and 3888 for 2181, as ZooKeeper's manual has them.
PEER, ELECTION = 707, 1707
MOST_NODES = 9
FIRST_BROKER = 9092
LOOK_S = 0.5

REMEDIES: dict[type[EnsembleFailed], str] = {
    PortTaken: "Stop the other program, or choose other ports with --port",
    DirectoryTaken: "Name another directory with --dir, or give the --nodes of its data",
}


@app.command()
def zookeeper(
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=MOST_NODES, help="How many servers; an odd number.")] = 1,
    directory: Annotated[
        str, typer.Option("--dir", metavar="DIR", help="The data directory.", show_default=f"./{DIRECTORY}")
    ] = DIRECTORY,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="The first server's; each further one has the next.")
    ] = PORT,
) -> None:
    """Run ZooKeeper in the foreground, for a cluster of brokers on this machine.

    Ctrl-C or SIGTERM stops it; the data stays. The server comes with PySpark and needs Java 17 or later.
    """
    if not directory:
        raise misused("--dir is empty", remedy="Name the directory for ZooKeeper's data")
    if nodes > 1 and port + ELECTION + nodes > 65535:
        raise misused(
            f"--port {port} leaves no room", remedy=f"Servers of an ensemble also use ports {ELECTION} above it"
        )
    if nodes % 2 == 0:
        note(f"{nodes} servers survive no more failures than {nodes - 1}: a majority must run. Odd numbers are better.")
    ports = [Ports(each, each + PEER, each + ELECTION) for each in range(port, port + nodes)]
    raise typer.Exit(_run(Ensemble(Path(directory), ports, Tuning()), Path(directory)))


def _run(ensemble: Ensemble, directory: Path) -> int:
    with Stops() as stops:
        try:
            with stops.held():
                ensemble.launch()
            ensemble.wait_until_serving(ensemble.servers)
            _announce(ensemble, directory)
            _look_after(ensemble)
        except EnsembleFailed as failed:
            raise CommandError(str(failed), remedy=REMEDIES.get(type(failed), "")) from None
        except StopAsked:
            return OK
        finally:
            stops.ignore()
            ensemble.stop()


def _look_after(ensemble: Ensemble) -> NoReturn:
    """Run until StopAsked; fail when no server is left."""
    running = list(ensemble.servers)
    while running:
        time.sleep(LOOK_S)
        for server in [each for each in running if each.pid is None]:
            running.remove(server)
            note(f"The server on port {server.port} ended: {server.last_words()}")
    raise CommandError("no ZooKeeper server is left", remedy="Their logs in the data directory say why")


def _announce(ensemble: Ensemble, directory: Path) -> None:
    command = own_command()
    lines = [
        "ZooKeeper is ready.",
        f"  Connect  {ensemble.connect}",
        f"  Data     {directory.resolve()}",
        "Start brokers on it, each in a terminal of its own:",
    ]
    lines += [
        f"  {command} up --zookeeper {ensemble.connect} --id {number} --dir data-{number} "
        f"--listen localhost:{FIRST_BROKER + number - 1}"
        for number in (1, 2, 3)
    ]
    announce([*lines, "Stop with Ctrl-C."])
