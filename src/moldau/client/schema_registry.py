"""A client of a schema registry for commands and consoles: blocking requests, JSON in and out. Caches nothing.

Serializers have their own clients, with caches; this one shows and changes what a registry has.
"""

import http.client
import json
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from moldau.client.admin.errors import AdminError, InvalidArgument, Unreachable

DEFAULT_URL: Final = "http://localhost:8081"
TIMEOUT_S: Final = 60.0
MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024

# Properties by Confluent's names.
URL: Final = "schema.registry.url"
USER_INFO: Final = "basic.auth.user.info"
TOKEN: Final = "bearer.auth.token"
CA: Final = "schema.registry.ssl.ca.location"

Query = Mapping[str, str | int | bool | None]


class RegistryRefused(AdminError):
    """The registry answered with an error; `code` is the one in the body, `status` that of HTTP."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{message.rstrip('.')} ({code})")
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """Where a registry is, and the login: `user:password`, or a token."""

    url: str = DEFAULT_URL
    user_info: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    ca: str | None = None

    def get(self, *path: str, query: Query | None = None) -> Any:
        return self.ask("GET", *path, query=query)

    def ask(self, method: str, *path: str, query: Query | None = None, body: object = None) -> Any:
        """The JSON of an answer. The segments of the path are encoded here."""
        where = "/".join(("", *(quote(segment, safe="") for segment in path)))
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        data = None if body is None else json.dumps(body).encode()
        connection, prefix = self._connect()
        try:
            target = f"{prefix}{where}?{urlencode(given)}" if given else f"{prefix}{where}"
            connection.request(method, target, data, self._headers())
            response = connection.getresponse()
            text = response.read(MAX_ANSWER_BYTES)
        except ssl.SSLError as error:
            raise Unreachable(self.url, f"TLS failed: {error.reason or error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(self.url, getattr(error, "strerror", None) or str(error)) from error
        finally:
            connection.close()
        return self._read(response.status, text)

    def _read(self, status: int, text: bytes) -> Any:
        try:
            found = json.loads(text) if text.strip() else None
        except ValueError:
            raise AdminError(f"{self.url} does not answer like a schema registry") from None
        if status < 400:
            return found
        told = found if isinstance(found, dict) else {}
        raise RegistryRefused(status, int(told.get("error_code", status)), str(told.get("message", f"HTTP {status}")))

    def _connect(self) -> tuple[http.client.HTTPConnection, str]:
        parts = urlsplit(self.url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if parts.scheme not in ("http", "https") or not host:
            raise InvalidArgument(f"{self.url!r} is no address of a schema registry, such as {DEFAULT_URL}")
        if parts.scheme == "https":
            try:
                context = ssl.create_default_context(cafile=self.ca)
            except OSError as error:
                raise InvalidArgument(f"{CA}: cannot read {self.ca}: {error.strerror}") from error
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context), parts.path.rstrip("/")
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S), parts.path.rstrip("/")

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": MEDIA_TYPE, "Accept": f"{MEDIA_TYPE}, application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        elif self.user_info:
            headers["Authorization"] = f"Basic {b64encode(self.user_info.encode()).decode()}"
        return headers


def read_registry(properties: Mapping[str, str], url: str | None = None) -> SchemaRegistry:
    """The registry that properties name."""
    where = url or properties.get(URL, DEFAULT_URL)
    return SchemaRegistry(
        where.rstrip("/"), properties.get(USER_INFO, ""), properties.get(TOKEN, ""), properties.get(CA) or None
    )


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
