"""`moldau schema`: register, list, describe, compare, check and delete the schemas of a registry."""

import difflib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.tools.common.app import App
from moldau.tools.common.confirm import Yes, require_yes
from moldau.tools.common.failure import FAILED, CommandError, misused, note
from moldau.tools.common.options import CommandContext, DryRun, client_command
from moldau.tools.common.output import counted, print_json, print_table, print_text

if TYPE_CHECKING:
    from moldau.client.schema_registry import SchemaRegistry

app = App(name="schema", help="Register, list, describe, compare, check and delete schemas.")

TYPES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
LATEST = "latest"

Registry = Annotated[
    str | None,
    typer.Option(
        "--registry",
        "-r",
        metavar="URL",
        envvar="MOLDAU_REGISTRY",
        show_envvar=False,
        help="The schema registry.",
        show_default="http://localhost:8081, or MOLDAU_REGISTRY",
    ),
]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Such as orders-value.")]
SchemaFile = Annotated[str, typer.Argument(metavar="FILE", help="The schema; - for stdin.")]
SchemaTypeOption = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="AVRO, JSON or PROTOBUF.", show_default="by the file's name"),
]
References = Annotated[
    list[str] | None,
    typer.Option("--reference", metavar="NAME=SUBJECT:VERSION", help="A schema that this one uses."),
]
Normalize = Annotated[bool, typer.Option("--normalize", help="Order and notation make no difference.")]


@client_command(app, "register")
def register(
    context: CommandContext,
    subject: Subject,
    file: SchemaFile,
    registry: Registry = None,
    schema_type: SchemaTypeOption = None,
    references: References = None,
    normalize: Normalize = False,
    dry_run: DryRun = False,
) -> None:
    """Register a schema under a subject; one that is there already keeps its id."""
    client = _client(context, registry)
    body = read_schema(file, schema_type, references)
    if dry_run:
        _check(client, subject, LATEST, body, normalize=normalize, all_versions=True)
        note(f"{subject} would take this schema.")
        return
    answer = client.ask("POST", "subjects", subject, "versions", query={"normalize": normalize}, body=body)
    if context.json:
        print_json(answer)
    else:
        version = answer.get("version")
        print_text(f"{subject} has it" + (f" as version {version}" if version else "") + f", with id {answer['id']}.")


@client_command(app, "list")
def list_all(
    context: CommandContext,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only subjects that begin so.")] = "",
    registry: Registry = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="With soft-deleted versions.")] = False,
) -> None:
    """List subjects with their latest schemas."""
    client = _client(context, registry)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in client.get("schemas", query={"subjectPrefix": prefix or ":*:", "deleted": deleted}):
        found.setdefault(row["subject"], []).append(row)
    rows = [
        {
            "subject": subject,
            "type": versions[-1].get("schemaType", "AVRO"),
            "id": versions[-1]["id"],
            "versions": [each["version"] for each in versions],
            "deleted": [each["version"] for each in versions if each.get("deleted")],
        }
        for subject, versions in found.items()
    ]
    if context.json:
        print_json(rows)
    elif rows:
        columns = ("subject", "type", "id", "versions", *(("deleted",) if deleted else ()))
        print_table([name.upper() for name in columns], [[row[name] or None for name in columns] for row in rows])
    else:
        note("There are no schemas.")


@client_command(app, "describe")
def describe(
    context: CommandContext,
    subject: Subject,
    registry: Registry = None,
    version: Annotated[str, typer.Option("--version", metavar="N", help="A version.")] = LATEST,
) -> None:
    """Show a version of a subject with its compatibility level, and what refers to it."""
    client = _client(context, registry)
    found = client.get("subjects", subject, "versions", version)
    level = client.get("config", subject, query={"defaultToGlobal": True})["compatibilityLevel"]
    mode = client.get("mode", subject, query={"defaultToGlobal": True})["mode"]
    by = client.get("subjects", subject, "versions", str(found["version"]), "referencedby")
    if context.json:
        print_json({**found, "compatibilityLevel": level, "mode": mode, "referencedBy": by})
        return
    rows = [
        ("Subject", found["subject"]),
        ("Version", found["version"]),
        ("Id", found["id"]),
        ("Type", found.get("schemaType", "AVRO")),
        ("Compatibility", level),
        ("Mode", mode),
        ("References", [f"{each['name']}={each['subject']}:{each['version']}" for each in found.get("references", ())]),
        ("Referenced by", [f"id {each}" for each in by]),
    ]
    print_table(("", ""), [(name, value) for name, value in rows if value != []])
    print_text(pretty(found["schema"]))


@client_command(app, "diff")
def diff(
    context: CommandContext,
    subject: Subject,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A version.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="A version.")] = LATEST,
    registry: Registry = None,
) -> None:
    """Show the lines in which two versions of a subject differ."""
    client = _client(context, registry)
    before, after = (
        pretty(client.get("subjects", subject, "versions", each)["schema"]).splitlines() for each in (old, new)
    )
    names = f"{subject} version {old}", f"{subject} version {new}"
    lines = list(difflib.unified_diff(before, after, *names, lineterm=""))
    if context.json:
        print_json(lines)
    elif lines:
        print_text("\n".join(lines))
    else:
        note("They are the same.")


@client_command(app, "check")
def check(
    context: CommandContext,
    subject: Subject,
    file: SchemaFile,
    registry: Registry = None,
    schema_type: SchemaTypeOption = None,
    references: References = None,
    normalize: Normalize = False,
    version: Annotated[
        str | None, typer.Option("--version", metavar="N", help="Against this version, not by the subject's level.")
    ] = None,
) -> None:
    """Check whether a subject would take a schema; exit code 1 if not."""
    client = _client(context, registry)
    body = read_schema(file, schema_type, references)
    _check(client, subject, version or LATEST, body, normalize=normalize, all_versions=version is None)
    if context.json:
        print_json({"is_compatible": True})
    else:
        note(f"{subject} would take this schema.")


@client_command(app, "delete")
def delete(
    context: CommandContext,
    subject: Subject,
    registry: Registry = None,
    version: Annotated[str | None, typer.Option("--version", metavar="N", help="Only this version.")] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="For good: its ids may be given to other schemas.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete a subject or one of its versions; softly, so that its ids can still be read, if not --permanent."""
    from moldau.client.schema_registry import RegistryRefused

    client = _client(context, registry)
    versions = client.get("subjects", subject, "versions", query={"deleted": permanent})
    chosen = versions if version is None else [client.get("subjects", subject, "versions", version)["version"]]
    how = "permanently " if permanent else ""
    what = f"{subject}, {counted(len(chosen), 'version')}: {', '.join(map(str, chosen))}"
    if dry_run:
        _show_deleted(context, chosen, f"Would {how}delete {what}.")
        return
    if not yes:
        require_yes("schema delete", f"Delete {how}{what}?")
    path = ("subjects", subject) if version is None else ("subjects", subject, "versions", str(chosen[0]))
    try:
        if permanent:
            _delete_softly(client, path)
        client.ask("DELETE", *path, query={"permanent": permanent})
    except RegistryRefused as refused:
        raise CommandError(f"cannot delete {subject}: {refused}", exit_code=FAILED) from None
    _show_deleted(context, chosen, f"Deleted {how}{what}.")


def _delete_softly(client: "SchemaRegistry", path: tuple[str, ...]) -> None:
    """Registries want it as the first step of a permanent deletion; it may be done already."""
    from moldau.client.schema_registry import RegistryRefused

    try:
        client.ask("DELETE", *path)
    except RegistryRefused as refused:
        if refused.status != 404:
            raise


def _show_deleted(context: CommandContext, versions: list[int], text: str) -> None:
    if context.json:
        print_json(versions)
    else:
        print_text(text)


def _check(
    client: "SchemaRegistry", subject: str, version: str, body: dict[str, Any], *, normalize: bool, all_versions: bool
) -> None:
    """Raise CommandError with the reasons if the subject would not take the schema."""
    path = ("compatibility", "subjects", subject, "versions", *(() if all_versions else (version,)))
    answer = client.ask("POST", *path, query={"verbose": True, "normalize": normalize}, body=body)
    if not answer["is_compatible"]:
        reasons = "; ".join(answer.get("messages", ()))
        raise CommandError(f"{subject} would not take this schema: {reasons}", exit_code=FAILED)


def _client(context: CommandContext, url: str | None) -> "SchemaRegistry":
    from moldau.client.schema_registry import read_registry

    return read_registry(context.target.properties, url)


def read_schema(file: str, schema_type: str | None, references: list[str] | None) -> dict[str, Any]:
    """The body of a request with the schema in a file."""
    if file == "-":
        text = sys.stdin.read()
    else:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise misused(f"cannot read {file}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    kind = (schema_type or TYPES.get(Path(file).suffix, "AVRO")).upper()
    if kind not in TYPES.values():
        raise misused(f"--type {schema_type!r} is not known", remedy=f"Give one of {', '.join(TYPES.values())}")
    return {"schema": text, "schemaType": kind, "references": [read_reference(each) for each in references or ()]}


def read_reference(text: str) -> dict[str, Any]:
    name, equals, rest = text.partition("=")
    subject, colon, version = rest.rpartition(":")
    if not equals or not colon or not name or not subject or not version.isdecimal():
        raise misused(f"--reference {text!r} is not of the form NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}


def pretty(schema: str) -> str:
    """A schema in lines: JSON indented, anything else as it is."""
    try:
        return json.dumps(json.loads(schema), indent=2, ensure_ascii=False)
    except ValueError:
        return schema.rstrip()
