"""Forwarding: a write goes to the registry that may write, with the client's own login. Retries what was never sent."""

import asyncio
import http.client
import json
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from moldau.services.registry.core.errors import Code, RegistryError

POSITION: Final = "x-moldau-position"  # on an answer: the position in the topic that has the change
FORWARDED: Final = "x-forward"  # on a request that another registry sent: it is not forwarded again
PASSED: Final = ("authorization", "content-type", "accept", "confluent-accept-unknown-properties")
THREADS: Final = 16
TIMEOUT_S: Final = 50.0  # less than a request may take here
MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024


class Forwarded(NamedTuple):
    status: int
    content_type: str
    body: bytes
    position: int | None

    @property
    def code(self) -> int:
        """The error code in the body; 0 for none."""
        if self.status < 400:
            return 0
        try:
            found = json.loads(self.body).get("error_code", 0)
        except (ValueError, AttributeError):
            return 0
        return found if isinstance(found, int) else 0


class Forwarder:
    def __init__(self, ca: str | None = None) -> None:
        self._ca = ca
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="moldau-registry-forward")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def send(self, url: str, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Forwarded | None:
        """The answer of the registry at `url`; None if it could not be asked, so that asking another one is safe."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._send, url, method, path, dict(headers), body)

    def _send(self, url: str, method: str, path: str, headers: dict[str, str], body: bytes) -> Forwarded | None:
        connection = self._connection(url)
        try:
            try:
                connection.connect()
            except OSError:
                return None
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                answer = response.read(MAX_ANSWER_BYTES)
            except (OSError, http.client.HTTPException) as problem:
                message = f"Forwarding to the registry at {url} failed: {problem}. The change may take effect."
                raise RegistryError(Code.FORWARDING_FAILED, message) from problem
            told = response.headers.get(POSITION, "")
            position = int(told) if told.isascii() and told.isdecimal() else None
            return Forwarded(response.status, response.headers.get("content-type", ""), answer, position)
        finally:
            connection.close()

    def _connection(self, url: str) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._ca)
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)


def headers_to_pass(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in PASSED if name in headers} | {FORWARDED: "true"}
