"""A schema registry in this process: Confluent's REST for what a client reads, over real HTTP."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import fastavro

from moldau.spark.value_formats import Registry

VERSION = re.compile(r"/subjects/([^/]+)/versions/(latest|\d+)")
BY_ID = re.compile(r"/schemas/ids/(\d+)")


@dataclass
class SmallRegistry:
    """Schemas as they are registered here; `asked` are the paths of all requests."""

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    credentials: str = ""  # the header Authorization that is expected, if any

    @property
    def registry(self) -> Registry:
        return Registry(self.url)

    def register(self, subject: str, schema: object, *references: tuple[str, str, int], kind: str = "AVRO") -> int:
        """The id of the schema, as the next version of the subject."""
        found = len(self.schemas) + 1
        named = [{"name": name, "subject": of, "version": version} for name, of, version in references]
        self.schemas[found] = {"schema": json.dumps(schema)}
        if kind != "AVRO":
            self.schemas[found]["schemaType"] = kind
        if named:
            self.schemas[found]["references"] = named
        self.subjects.setdefault(subject, []).append(found)
        return found

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        by_id, version = BY_ID.fullmatch(path), VERSION.fullmatch(path)
        if by_id and int(by_id[1]) in self.schemas:
            return 200, self.schemas[int(by_id[1])]
        if version and version[1] in self.subjects:
            ids = self.subjects[version[1]]
            number = len(ids) if version[2] == "latest" else int(version[2])
            found = ids[number - 1]
            return 200, {"subject": version[1], "version": number, "id": found, **self.schemas[found]}
        return 404, {
            "error_code": 40403 if by_id else 40401,
            "message": f"{'Schema' if by_id else 'Subject'} not found",
        }


@contextmanager
def small_registry() -> Iterator[SmallRegistry]:
    registry = SmallRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            status, document = registry.answer(self.path)
            if self.headers.get("Authorization", "") != registry.credentials:
                status, document = 401, {"error_code": 401, "message": "Unauthorized"}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *arguments: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield registry
    server.shutdown()
    thread.join()
    server.server_close()


def avro(schema_id: int, schema: Any, document: object) -> bytes:
    """A value as Confluent's serializers write it."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), document)
    return b"\0" + schema_id.to_bytes(4) + out.getvalue()
