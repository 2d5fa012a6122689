"""The root of the command line: the options that hold for every command, and the table of sub-commands.

The table names modules instead of importing them, so `moldau topic list` never loads what `moldau perf` needs,
and a product that is not installed is not offered.
"""

import importlib
import importlib.util
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

import moldau
from moldau.tools.common.options import Output, OutputOption, Properties, RootBootstrap, Shared

# name → (module, Typer application in it); the order is the order of the help page.
COMMANDS = {
    "up": ("moldau.tools.broker.app", "up_app"),
    "broker": ("moldau.tools.broker.app", "broker_app"),
    "cluster": ("moldau.tools.cluster.app", "app"),
    "zookeeper": ("moldau.tools.cluster.zookeeper", "app"),
    "topic": ("moldau.tools.topic.app", "app"),
    "partition": ("moldau.tools.partition.app", "app"),
    "produce": ("moldau.tools.records.produce", "app"),
    "consume": ("moldau.tools.records.consume", "app"),
    "group": ("moldau.tools.group.app", "app"),
    "txn": ("moldau.tools.txn.app", "app"),
    "pipeline": ("moldau.tools.pipeline.app", "app"),
    "spark": ("moldau.tools.pipeline.pack", "app"),
    "perf": ("moldau.tools.records.perf", "app"),
    "log": ("moldau.tools.log.dump", "app"),
    "doctor": ("moldau.tools.doctor", "app"),
}


class LazyGroup(TyperGroup):
    """A command group that imports a sub-command when it is first asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, (module, _) in COMMANDS.items() if importlib.util.find_spec(module) is not None]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in self.list_commands(ctx):
            module, attribute = COMMANDS[cmd_name]
            self.commands[cmd_name] = get_command(getattr(importlib.import_module(module), attribute))
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS:  # Typer suggests the nearest of the commands that it has loaded.
            for name in self.list_commands(ctx):
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"moldau {moldau.__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    bootstrap: RootBootstrap = None,
    output: OutputOption = None,
    properties: Properties = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Moldau: a streaming platform that speaks Kafka's protocol. Start with: moldau up"""
    ctx.obj = Shared(bootstrap, output or Output.TABLE, tuple(properties or ()))
