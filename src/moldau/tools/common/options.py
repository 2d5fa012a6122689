"""Options that all commands with a broker share, before or after the command's name."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from moldau.client.admin.target import Target
from moldau.client.settings import BOOTSTRAP_PROPERTY, BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP, PROFILE_VARIABLE
from moldau.tools.common.failure import misused, split_pair
from moldau.tools.common.hints import remember
from moldau.tools.common.interrupts import ended_by_ctrl_c
from moldau.tools.common.profiles import FILE_MARK, expand, profile

NO_SECRETS = {  # properties that suggested commands repeat
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
}

DryRun = Annotated[bool, typer.Option("--dry-run", help="Validate only; change nothing.")]


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


PANEL = "Connection and output"


def _bootstrap_option(**more: Any) -> Any:
    return typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="Bootstrap address; several with commas.",
        show_default=f"{DEFAULT_BOOTSTRAP}, or {BOOTSTRAP_VARIABLE}",
        rich_help_panel=PANEL,
        **more,
    )


# Only the root reads the environment: read after the command, it would win over an option before it.
RootBootstrap = Annotated[str | None, _bootstrap_option(envvar=BOOTSTRAP_VARIABLE, show_envvar=False)]
Bootstrap = Annotated[str | None, _bootstrap_option()]
OutputOption = Annotated[
    Output | None,
    typer.Option("--output", "-o", help="Tables for people, JSON for programs.", rich_help_panel=PANEL),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="KEY=VALUE",
        help="A property for librdkafka, such as a TLS or SASL setting; @FILE for a file of them.",
        rich_help_panel=PANEL,
    ),
]


Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        envvar=PROFILE_VARIABLE,
        show_envvar=False,
        help="Properties of ~/.config/moldau/NAME.properties, a private file.",
        show_default=PROFILE_VARIABLE,
        rich_help_panel=PANEL,
    ),
]


@dataclass(frozen=True, slots=True)
class Shared:
    """The shared options as typed before the command's name."""

    bootstrap: str | None = None
    output: Output = Output.TABLE
    properties: tuple[str, ...] = ()  # as typed: KEY=VALUE or @FILE
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The shared options of one command: the cluster to talk to, and how to print."""

    target: Target
    json: bool


def merge(outer: Shared, bootstrap: str | None, output: Output | None, properties: list[str] | None) -> CommandContext:
    """Options after the command's name win over those before it; properties add up."""
    given = (*outer.properties, *(properties or ()))
    of_profile = profile(outer.profile) if outer.profile else []
    pairs = dict(split_pair(text, "-X") for text in (*of_profile, *expand(given)))
    inline = dict(split_pair(text, "-X") for text in given if not text.startswith(FILE_MARK))
    ways = (bootstrap, outer.bootstrap, inline.get(BOOTSTRAP_PROPERTY))
    typed = next((each for each in ways if each is not None), None)
    found = pairs.pop(BOOTSTRAP_PROPERTY, DEFAULT_BOOTSTRAP)
    _check_files(pairs)
    remember(*_repeated(typed, given, outer.profile))
    return CommandContext(Target(found if typed is None else typed, pairs), (output or outer.output) is Output.JSON)


def _check_files(properties: Mapping[str, str]) -> None:
    """librdkafka says in OpenSSL's words only that a file is missing."""
    for name, path in properties.items():
        if name.startswith("ssl.") and name.endswith(".location") and not (path == "probe" or os.path.exists(path)):
            raise misused(f"{name}: there is no file {path}", remedy="Paths are relative to the current directory")


def _repeated(typed: str | None, given: Sequence[str], profile_name: str | None) -> tuple[list[str], list[str]]:
    """Options that the next command needs, before and after it. No properties that may be passwords."""
    own_profile = profile_name is not None and profile_name != os.environ.get(PROFILE_VARIABLE)
    shown = [text for text in given if text.startswith(FILE_MARK) or text.partition("=")[0].strip() in NO_SECRETS]
    after = [word for text in shown for word in ("-X", text)]
    if typed is not None and typed != os.environ.get(BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP):
        after += ["-b", typed]
    return ["--profile", str(profile_name)] if own_profile else [], after


def read_choices(texts: list[str] | None, option: str, choices: Sequence[str]) -> set[str]:
    """Values of an option that may be given several times, or once with commas, in capitals or not."""
    known = {choice.lower(): choice for choice in choices}
    found = set()
    for text in [part.strip() for given in texts or () for part in given.split(",")]:
        if text.lower() not in known:
            raise misused(f"{option} {text!r} is not known", remedy=f"Give one of {', '.join(choices)}")
        found.add(known[text.lower()])
    return found


def client_command(app: typer.Typer, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command whose first parameter is a CommandContext; the others are Typer's as usual."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(ctx: typer.Context, **arguments: Any) -> None:
            shared = [arguments.pop(parameter.name) for parameter in _SHARED_PARAMETERS]
            with ended_by_ctrl_c():
                function(merge(ctx.obj or Shared(), *shared), **arguments)

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        command.__dict__.pop("__wrapped__")  # or Typer would use the signature without these options
        parameters = [_CONTEXT_PARAMETER, *own, *_SHARED_PARAMETERS]
        command.__dict__["__signature__"] = inspect.Signature(
            [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        )
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(name)(command)
        return function

    return register


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


_CONTEXT_PARAMETER = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
_SHARED_PARAMETERS = (
    _parameter("bootstrap", Bootstrap),
    _parameter("output", OutputOption),
    _parameter("properties", Properties),
)
