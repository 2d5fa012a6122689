"""The root of the command line: options of every command, and the table of sub-commands.

The table names modules instead of importing them, so that a command loads only its own dependencies, and commands that
are not installed are not offered.
"""

import importlib
import importlib.util
from typing import Annotated, Any

import typer
from typer.main import get_command

import moldau
from moldau import compiled
from moldau.tools.common.app import App, Group
from moldau.tools.common.options import Output, OutputOption, Profile, Properties, RootBootstrap, Shared

# name → (module, Typer application in it, line of the help page), in the order of the help page.
COMMANDS = {
    "up": ("moldau.tools.broker.app", "up_app", "Start a broker on this machine and say what to try next."),
    "broker": ("moldau.tools.broker.app", "broker_app", "Run a broker in the foreground."),
    "cluster": ("moldau.tools.cluster.app", "app", "Run, describe and check clusters; remove brokers."),
    "zookeeper": ("moldau.tools.cluster.zookeeper", "app", "Run ZooKeeper for brokers on this machine."),
    "topic": ("moldau.tools.topic.app", "app", "Create, list, describe, alter and delete topics."),
    "partition": ("moldau.tools.partition.app", "app", "Reassign and replicate partitions, elect leaders."),
    "produce": ("moldau.tools.records.produce", "app", "Write lines from stdin or a file as records."),
    "consume": ("moldau.tools.records.consume", "app", "Print records of a topic."),
    "group": ("moldau.tools.group.app", "app", "List, describe and delete consumer groups; reset offsets."),
    "txn": ("moldau.tools.txn.app", "app", "List and describe transactions; abort hanging ones."),
    "user": ("moldau.tools.user.app", "app", "Create, list, describe, alter and delete users."),
    "token": ("moldau.tools.token.app", "app", "Create, list, renew and expire delegation tokens."),
    "acl": ("moldau.tools.acl.app", "app", "List, create and delete ACLs."),
    "security": ("moldau.tools.security.app", "app", "Show what clients may do."),
    "quota": ("moldau.tools.quota.app", "app", "Limit what users, client ids and addresses may use."),
    "org": ("moldau.tools.org.app", "app", "Create organisations, give roles in them, show their usage."),
    "product": ("moldau.tools.product.app", "app", "Create, limit and delete the products of organisations."),
    "pipeline": ("moldau.tools.pipeline.app", "app", "Run and watch Spark pipelines."),
    "streams": ("moldau.tools.streams.app", "app", "Describe, run and test programs of Streams."),
    "spark": ("moldau.tools.pipeline.pack", "app", "Prepare Spark clusters for pipelines."),
    "schema": ("moldau.tools.schema.app", "app", "Register, check, compare and delete schemas."),
    "registry": ("moldau.tools.registry.app", "app", "Run a schema registry."),
    "perf": ("moldau.tools.records.perf", "app", "Measure the throughput and latency of a broker."),
    "certs": ("moldau.tools.certs.app", "app", "Create certificates for tests and laptops."),
    "log": ("moldau.tools.log.dump", "app", "Look into the files of a log directory."),
    "doctor": ("moldau.tools.doctor", "app", "Check Python, Java, packages, brokers and their disks."),
}


class LazyGroup(Group):
    """A command group that imports a sub-command when it is first asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, (module, *_) in COMMANDS.items() if importlib.util.find_spec(module) is not None]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in self.list_commands(ctx)])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in self.list_commands(ctx):
            module, attribute, _ = COMMANDS[cmd_name]
            self.commands[cmd_name] = get_command(getattr(importlib.import_module(module), attribute))
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS:  # Typer suggests the nearest of the commands that it has loaded.
            for name in self.list_commands(ctx):
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


app = App(
    cls=LazyGroup,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"moldau {moldau.__version__} ({compiled.describe()})")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    bootstrap: RootBootstrap = None,
    output: OutputOption = None,
    properties: Properties = None,
    profile_name: Profile = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Moldau: a streaming platform that speaks Kafka's protocol. Start with: moldau up

    Exit codes: 0 done, or a server was stopped; 1 failed; 2 used wrongly; 130 interrupted with Ctrl-C.
    """
    ctx.obj = Shared(bootstrap, output or Output.TABLE, tuple(properties or ()), profile_name or None)
