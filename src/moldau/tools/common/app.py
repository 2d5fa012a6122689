"""Typer applications with plain help pages: options under their panels, wrapped to the terminal, without rich.

rich would draw boxes, and cost every help page a tenth of a second and more.
"""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

OPTIONS = "Options"


class Command(TyperCommand):
    """A command with a help page in sections, one for each panel of its options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        format_options(self, ctx, formatter)


class Group(TyperGroup):
    def format_options(self, ctx: Any, formatter: Any) -> None:
        format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)


class App(typer.Typer):
    """A Typer application whose commands and groups print plain help."""

    def __init__(self, *, cls: type[TyperGroup] = Group, add_completion: bool = False, **more: Any) -> None:
        super().__init__(cls=cls, add_completion=add_completion, rich_markup_mode=None, **more)

    def command(self, name: str | None = None, **more: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": Command, **more})


def format_options(command: Any, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], OPTIONS: []}
    for parameter in command.get_params(ctx):
        row = parameter.get_help_record(ctx)
        if row is None:
            continue
        if parameter.param_type_name == "argument":
            sections["Arguments"].append(row)
        else:
            sections.setdefault(getattr(parameter, "rich_help_panel", None) or OPTIONS, []).append(row)
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
