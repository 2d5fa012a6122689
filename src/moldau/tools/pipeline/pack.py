"""`moldau spark pack`: makes the archive of packages that executors on a cluster need, and says how to use it."""

from pathlib import Path
from typing import Annotated

import typer

from moldau.spark.pack import DEFAULT_FILE, PackFailed, make_pack, this_python
from moldau.tools.common.app import App
from moldau.tools.common.failure import CommandError, misused
from moldau.tools.common.options import Output, OutputOption, Shared
from moldau.tools.common.output import print_json, print_table, print_text

app = App(name="spark", help="Prepare Spark clusters for pipelines.", no_args_is_help=True)

MEGABYTE = 1 << 20


@app.callback()
def spark() -> None:
    """Prepare Spark clusters for pipelines."""


@app.command()
def pack(
    ctx: typer.Context,
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE", help="Where to write the archive.")
    ] = DEFAULT_FILE,
    also: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="PACKAGE", help="One more installed package, which your functions import."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Pack moldau and the packages that its tasks import, for executors that have none of them.

    Workers need PySpark and a Python of the same minor version for the same platform, nothing else.
    """
    target = Path(file).expanduser()
    if target.is_dir():
        raise misused(f"--file {file} is a directory", remedy=f"Name a file, such as {target / DEFAULT_FILE}")
    try:
        made = make_pack(target, also or ())
    except PackFailed as failed:
        raise CommandError(str(failed)) from failed
    if (output or (ctx.obj or Shared()).output) is Output.JSON:
        print_json(
            {"file": str(made.file), "bytes": made.size, "python": this_python(), "packages": dict(made.packages)}
        )
        return
    print_table(("PACKAGE", "VERSION"), list(made.packages.items()))
    print_text(f"\n{made.file} ({made.size / MEGABYTE:.0f} MB) for Python {this_python()}. Use it with:")
    print_text(f"  moldau pipeline run FILE.py --master spark://HOST:7077 --pack {made.file}")
    print_text(f'or  moldau.spark.session(NAME, "spark://HOST:7077", **{{"moldau.pack": "{made.file}"}})')
