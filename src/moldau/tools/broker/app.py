"""The help pages and usage checks of `moldau up` and `moldau broker`. The work is in broker.start."""

from typing import Annotated

import typer

from moldau.tools.broker.launch import UP_DIRECTORY, UP_LISTEN, Launch, start
from moldau.tools.common.app import App

up_app = App()
broker_app = App()


@up_app.command()
def up(
    directory: Annotated[
        str | None,
        typer.Option("--dir", metavar="DIR", help="Where the data is kept.", show_default=f"./{UP_DIRECTORY}"),
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.", show_default=UP_LISTEN)
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", metavar="HOST:PORT", help="Be a broker of the cluster of this ZooKeeper."),
    ] = None,
    number: Annotated[
        str | None, typer.Option("--id", metavar="N", help="The broker's number in its cluster.", show_default="1")
    ] = None,
) -> None:
    """Start everything on this machine and say what to try next."""
    raise typer.Exit(start(Launch("up", directory, listen, zookeeper=zookeeper, number=number)))


@broker_app.command()
def broker(
    directory: Annotated[
        str | None, typer.Option("--dir", metavar="DIR", help="Where the data is kept: log.dirs.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen: listeners, in plain text.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="A server.properties file, with Kafka's names.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One setting; wins over the other flags and the file."),
    ] = None,
) -> None:
    """Run a broker in the foreground; SIGTERM or Ctrl-C stops it cleanly."""
    raise typer.Exit(start(Launch("broker", directory, listen, config, tuple(settings or ()))))
