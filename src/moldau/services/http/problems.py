"""HTTP errors as values that can be raised, and their JSON: `{"error_code": …, "message": …}` as Confluent's."""

import json
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

# Codes of errors that are no service's own: the HTTP status and two digits, as Confluent's REST utilities count.
UNAUTHORIZED: Final = 40101
FORBIDDEN: Final = 40301
INTERNAL: Final = 50001
OVERLOADED: Final = 50301


class HttpProblem(Exception):
    """An expected failure. The message says what happened, to what, and what to do."""

    def __init__(self, status: int, message: str, code: int | None = None, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = status if code is None else code
        self.message = message
        self.retry_after_s = retry_after_s

    def response(self, media_type: str) -> Response:
        headers: dict[str, str] = {}
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="moldau", Bearer realm="moldau"'
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        body = {"error_code": self.code, "message": self.message}
        return json_response(body, media_type, self.status, headers)


def json_response(
    body: object, media_type: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Compact JSON. `media_type` is the service's own type of JSON, or plain `application/json`."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode(errors="replace"), status, headers, media_type)
