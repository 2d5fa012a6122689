"""`moldau pipeline adopt`: which checkpoint goes where, and what is printed about it."""

from pathlib import Path
from typing import TYPE_CHECKING

from moldau.tools.common.failure import CommandError, misused
from moldau.tools.common.output import print_json, print_table, print_text

if TYPE_CHECKING:
    from moldau.spark.pipelines.adopt import AdoptedCheckpoint


def local_path(text: str) -> Path:
    scheme, separator, rest = text.partition(":/")
    if separator and scheme != "file":
        raise misused(
            f"{text} is not in a local directory",
            remedy=f"Copy it to one first, adopt it with --to, and copy the result to {scheme}",
        )
    return Path("/" + rest.lstrip("/") if separator else text).expanduser().absolute()


def adopt_target(original: Path, name: str | None, query: str | None, to: str | None, directory: str) -> Path:
    """Where the copy goes: the checkpoint of a pipeline's query, or the path of --to."""
    from moldau.spark.pipelines.directory import NAME, NAME_RULE, is_locked, pipeline_directory
    from moldau.spark.pipelines.errors import InvalidPipelineName

    if (name is None) == (to is None):
        raise misused("give either --name or --to", remedy="--name is the pipeline that takes the checkpoint over")
    if to is not None:
        return local_path(to)
    assert name is not None
    try:
        pipeline = pipeline_directory(directory, name)
    except InvalidPipelineName as invalid:
        raise misused(str(invalid)) from invalid
    if is_locked(pipeline):
        raise CommandError(f"the pipeline {name} is running", remedy=f"Stop it with: moldau pipeline stop {name}")
    called = original.name if query is None else query
    if not NAME.fullmatch(called):
        raise misused(f"{called!r} is not a valid query name: {NAME_RULE}", remedy="Name it with --query")
    return pipeline.checkpoints / called


def print_adopted(found: "AdoptedCheckpoint", name: str | None, *, dry: bool, json: bool) -> None:
    rows = [(tp.topic, tp.partition, offset) for source in found.offsets for tp, offset in sorted(source.items())]
    if json:
        print_json(
            {
                "checkpoint": str(found.path),
                "batch": found.batch,
                "repeats": found.repeats,
                "offsets": [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in rows],
            }
        )
        return
    print_table(("TOPIC", "PARTITION", "NEXT OFFSET"), rows)
    if found.repeats:
        print_text(f"Batch {found.batch} is not finished; the query begins with repeating it.")
    if dry:
        print_text(f"This was a dry run: the checkpoint would be copied to {found.path}")
        return
    print_text(f"Copied the checkpoint to {found.path}")
    change = 'Change format("kafka") to format("moldau") in the query'
    if name is None:
        print_text(f"{change}, and its checkpointLocation to this path.")
    else:
        print_text(f'{change}, add .queryName("{found.path.name}"), and run: moldau pipeline run FILE.py --name {name}')
