"""Client of a schema registry with Confluent's REST interface: schemas by id, and the latest version of a subject.

It reads and never registers. Knows nothing of the formats of schemas.
"""

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from moldau.spark.cluster import QueryFailed
from moldau.spark.value_formats import Registry

TIMEOUT_S: Final = 15.0
MAX_RESPONSE_BYTES: Final = 16 << 20
MAX_CACHED: Final = 1000  # schemas of a process; they never change under their id
NOT_FOUND: Final = 404
MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A name that a schema uses, and the version of a subject that defines it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as it was registered; `kind` is AVRO, PROTOBUF or JSON."""

    id: int
    kind: str
    text: str
    references: tuple[SchemaReference, ...] = ()


class SchemaNotFound(QueryFailed):
    """The registry answers, and has no such schema."""


@lru_cache(MAX_CACHED)
def schema_by_id(registry: Registry, schema_id: int) -> RegisteredSchema:
    """Raises SchemaNotFound, or QueryFailed if the registry does not answer."""
    return _schema(registry, _get(registry, f"schemas/ids/{schema_id}"), schema_id)


@lru_cache(MAX_CACHED)
def schema_of_version(registry: Registry, subject: str, version: int) -> RegisteredSchema:
    return _schema(registry, _get(registry, f"subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}"))


def latest_schema(registry: Registry, subject: str) -> RegisteredSchema:
    return _schema(registry, _get(registry, f"subjects/{urllib.parse.quote(subject, safe='')}/versions/latest"))


def _schema(registry: Registry, document: object, schema_id: int | None = None) -> RegisteredSchema:
    try:
        assert isinstance(document, Mapping)
        references = tuple(
            SchemaReference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in document.get("references") or ()
        )
        found = int(document["id"]) if schema_id is None else schema_id
        return RegisteredSchema(found, str(document.get("schemaType", "AVRO")), str(document["schema"]), references)
    except (AssertionError, KeyError, TypeError, ValueError):
        raise QueryFailed(f"{registry.url} does not answer as a schema registry does") from None


def _get(registry: Registry, path: str) -> object:
    request = urllib.request.Request(f"{registry.url.rstrip('/')}/{path}", headers={"Accept": MEDIA_TYPE})
    if registry.user_info:
        request.add_header("Authorization", f"Basic {base64.b64encode(registry.user_info.encode()).decode()}")
    try:
        context = ssl.create_default_context(cafile=registry.ca or None)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
            found: object = json.loads(answer.read(MAX_RESPONSE_BYTES))
    except urllib.error.HTTPError as refused:
        reason = f"the schema registry {registry.url} returned {refused.code} for /{path}: {_reason(refused)}"
        raise (SchemaNotFound if refused.code == NOT_FOUND else QueryFailed)(reason) from None
    except OSError as failed:  # URLError is one
        raise QueryFailed(f"cannot reach the schema registry {registry.url}: {failed}") from failed
    except ValueError:
        raise QueryFailed(f"the response of {registry.url} to /{path} is not JSON") from None
    return found


def _reason(refused: urllib.error.HTTPError) -> str:
    """The message of the body, {"error_code": 40403, "message": "Schema not found"}."""
    try:
        said = json.loads(refused.read(MAX_RESPONSE_BYTES))
        return str(said["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return refused.reason
