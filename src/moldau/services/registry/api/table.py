"""The table of endpoints, and finding one for a path. A segment in braces is a parameter; slashes in it are encoded."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

import moldau
from moldau.security.acls import Operation
from moldau.services.registry.api import reads, writes
from moldau.services.registry.api.call import Call
from moldau.services.registry.core.decision import Decision
from moldau.services.registry.core.records import Json

CONTEXTS: Final = "contexts"
# What a path may begin with after /contexts/{context}/: its subjects are in that context.
IN_CONTEXT: Final = frozenset({"subjects", "schemas", "compatibility", "config", "mode"})


class Read(NamedTuple):
    run: Callable[[Call], Json]


class Text(NamedTuple):
    """A read whose answer is a schema's text as it is."""

    run: Callable[[Call], str]


class Write(NamedTuple):
    """`repeatable`: a second time changes nothing and answers the same."""

    run: Callable[[Call], Decision]
    repeatable: bool = False


class Endpoint(NamedTuple):
    """`needs` is the right on the subject's topic, or without a subject on the cluster. Lists leave out the rest."""

    method: str
    path: str
    does: Read | Text | Write
    needs: Operation | None = None


def version_of_server(_: Call) -> Json:
    return {"version": moldau.__version__, "commitId": ""}


ENDPOINTS: Final = (
    Endpoint("GET", "/", Read(reads.root)),
    Endpoint("POST", "/", Read(reads.root)),
    Endpoint("GET", "/schemas", Read(reads.list_schemas)),
    Endpoint("GET", "/schemas/types", Read(reads.list_types)),
    Endpoint("GET", "/schemas/ids/{id}", Read(reads.schema_by_id)),
    Endpoint("GET", "/schemas/ids/{id}/schema", Text(reads.schema_text_by_id)),
    Endpoint("GET", "/schemas/ids/{id}/subjects", Read(reads.subjects_of_id)),
    Endpoint("GET", "/schemas/ids/{id}/versions", Read(reads.versions_of_id)),
    Endpoint("GET", "/schemas/guids/{guid}", Read(reads.schema_by_guid)),
    Endpoint("GET", "/schemas/guids/{guid}/ids", Read(reads.ids_of_guid)),
    Endpoint("GET", "/subjects", Read(reads.list_subjects)),
    Endpoint("POST", "/subjects/{subject}", Read(reads.look_up_schema), Operation.DESCRIBE),
    Endpoint("DELETE", "/subjects/{subject}", Write(writes.delete_subject), Operation.DELETE),
    Endpoint("GET", "/subjects/{subject}/metadata", Read(reads.latest_with_metadata), Operation.DESCRIBE),
    Endpoint("GET", "/subjects/{subject}/versions", Read(reads.list_versions), Operation.DESCRIBE),
    Endpoint("POST", "/subjects/{subject}/versions", Write(writes.register, repeatable=True), Operation.WRITE),
    Endpoint("GET", "/subjects/{subject}/versions/{version}", Read(reads.version), Operation.DESCRIBE),
    Endpoint("DELETE", "/subjects/{subject}/versions/{version}", Write(writes.delete_version), Operation.DELETE),
    Endpoint("GET", "/subjects/{subject}/versions/{version}/schema", Text(reads.version_text), Operation.DESCRIBE),
    Endpoint(
        "GET", "/subjects/{subject}/versions/{version}/referencedby", Read(reads.referenced_by), Operation.DESCRIBE
    ),
    Endpoint(
        "POST",
        "/subjects/{subject}/versions/{version}/tags",
        Write(writes.modify_tags, repeatable=True),
        Operation.WRITE,
    ),
    Endpoint("POST", "/compatibility/subjects/{subject}/versions", Read(reads.check_compatibility), Operation.DESCRIBE),
    Endpoint(
        "POST",
        "/compatibility/subjects/{subject}/versions/{version}",
        Read(reads.check_compatibility),
        Operation.DESCRIBE,
    ),
    Endpoint("GET", "/config", Read(reads.config)),
    Endpoint("PUT", "/config", Write(writes.put_config, repeatable=True), Operation.ALTER_CONFIGS),
    Endpoint("DELETE", "/config", Write(writes.delete_config), Operation.ALTER_CONFIGS),
    Endpoint("GET", "/config/{subject}", Read(reads.config), Operation.DESCRIBE),
    Endpoint("PUT", "/config/{subject}", Write(writes.put_config, repeatable=True), Operation.ALTER_CONFIGS),
    Endpoint("DELETE", "/config/{subject}", Write(writes.delete_config), Operation.ALTER_CONFIGS),
    Endpoint("GET", "/mode", Read(reads.mode)),
    Endpoint("PUT", "/mode", Write(writes.put_mode, repeatable=True), Operation.ALTER_CONFIGS),
    Endpoint("DELETE", "/mode", Write(writes.delete_mode), Operation.ALTER_CONFIGS),
    Endpoint("GET", "/mode/{subject}", Read(reads.mode), Operation.DESCRIBE),
    Endpoint("PUT", "/mode/{subject}", Write(writes.put_mode, repeatable=True), Operation.ALTER_CONFIGS),
    Endpoint("DELETE", "/mode/{subject}", Write(writes.delete_mode), Operation.ALTER_CONFIGS),
    Endpoint("GET", "/contexts", Read(reads.list_contexts)),
    Endpoint("DELETE", "/contexts/{context}", Write(writes.delete_context), Operation.ALTER_CONFIGS),
    Endpoint("GET", "/v1/metadata/id", Read(reads.metadata_id)),
    Endpoint("GET", "/v1/metadata/version", Read(version_of_server)),
)


class Match(NamedTuple):
    endpoint: Endpoint
    path: dict[str, str]


def find(method: str, raw_path: str) -> Match | frozenset[str]:
    """The endpoint and its parameters, or the methods that the path takes: none if there is no such path."""
    segments = [unquote(each) for each in raw_path.split("/") if each]
    context = ""
    if len(segments) > 2 and segments[0] == CONTEXTS and segments[2] in IN_CONTEXT:
        context, segments = segments[1].strip(":"), segments[2:]
    methods = set()
    for endpoint in ENDPOINTS:
        parameters = _match([each for each in endpoint.path.split("/") if each], segments)
        if parameters is None:
            continue
        if endpoint.method == method:
            if context:
                parameters["subject"] = _in_context(context, parameters.get("subject", ""))
            return Match(endpoint, parameters)
        methods.add(endpoint.method)
    return frozenset(methods)


def _match(pattern: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    parameters = {}
    for wanted, found in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            parameters[wanted.strip("{}")] = found
        elif wanted != found:
            return None
    return parameters


def _in_context(context: str, subject: str) -> str:
    name = context if context.startswith(".") else f".{context}"
    return subject if subject.startswith(":.") else f":{name}:{subject}"
