"""Help pages and usage checks of `moldau up` and `moldau broker`. The work is in `launch`."""

from typing import Annotated

import typer

from moldau.tools.broker.launch import UP_DIRECTORY, UP_LISTEN, Launch, start
from moldau.tools.common.app import App

up_app = App()
broker_app = App()

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A broker setting; wins over the other options."),
]


@up_app.command()
def up(
    directory: Annotated[
        str | None,
        typer.Option("--dir", metavar="DIR", help="The data directory.", show_default=f"./{UP_DIRECTORY}"),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help="The listener's address.", show_default=UP_LISTEN),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", metavar="HOST:PORT", help="Join the cluster of this ZooKeeper."),
    ] = None,
    number: Annotated[
        str | None, typer.Option("--id", metavar="N", help="The broker's id in its cluster.", show_default="1")
    ] = None,
    settings: Settings = None,
    no_services: Annotated[
        bool, typer.Option("--no-services", help="Start the broker alone, without the HTTP services.")
    ] = False,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry", metavar="HOST:PORT", help="The schema registry's address.", show_default="localhost:8081"
        ),
    ] = None,
    services_config: Annotated[
        str | None,
        typer.Option("--services-config", metavar="FILE", help="Client properties of the services: TLS, SASL."),
    ] = None,
) -> None:
    """Start a broker on this machine and say what to try next."""
    launch = Launch(
        "up",
        directory,
        listen,
        settings=tuple(settings or ()),
        zookeeper=zookeeper,
        number=number,
        services=not no_services,
        services_config=services_config,
        registry=registry,
    )
    raise typer.Exit(start(launch))


@broker_app.command()
def broker(
    directory: Annotated[str | None, typer.Option("--dir", metavar="DIR", help="The data directory: log.dirs.")] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="The listener's address: listeners, PLAINTEXT.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="A server.properties file, with Kafka's names.")
    ] = None,
    settings: Settings = None,
) -> None:
    """Run a broker in the foreground; SIGTERM or Ctrl-C stops it cleanly."""
    raise typer.Exit(start(Launch("broker", directory, listen, config, tuple(settings or ()))))
