"""What `--schema` names: a file with a JSON Schema, or a subject of a schema registry. Asks nobody."""

import json
from pathlib import Path
from typing import Annotated

import typer

from moldau.tools.common.failure import misused

SETTING = "moldau.value.schema"
OTHER_FORMATS = (".avsc", ".proto")

Schema = Annotated[
    str | None,
    typer.Option(
        "--schema", metavar="FILE|SUBJECT", help="For values: a JSON Schema, or subject[@version] of a registry."
    ),
]


def read_schema(schema: str | None) -> dict[str, str]:
    """The topic setting for `--schema`."""
    if schema is None:
        return {}
    path = Path(schema)
    if path.suffix in OTHER_FORMATS:
        remedy = "Register it, and give --schema SUBJECT"
        raise misused(f"--schema takes a JSON Schema or a subject, not {path.suffix}", remedy=remedy)
    if not path.is_file():
        if path.suffix == ".json" or "/" in schema:
            raise misused(f"--schema: there is no file {schema}")
        return {SETTING: schema}
    try:
        return {SETTING: json.dumps(json.loads(path.read_text()), separators=(",", ":"), ensure_ascii=False)}
    except (OSError, ValueError) as problem:
        raise misused(f"--schema: {schema} is not JSON: {problem}") from None
