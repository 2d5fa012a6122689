"""What every HTTP service has: errors as JSON, bounds, authentication, CORS, /live and /ready."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from moldau.services.http.application import build_application
from moldau.services.http.authentication import BasicLogin, BearerLogin, Login, principal_of, read_login
from moldau.services.http.problems import HttpProblem
from moldau.services.http.settings import Address, HttpSettings, InvalidAddress, read_address

MEDIA_TYPE = "application/vnd.test+json"
LIMIT = 100


class Passwords:
    """Logins of one user."""

    async def user_of(self, login: Login) -> str | None:
        return "ada" if login in (BasicLogin("ada", "secret"), BearerLogin("token")) else None


async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type=MEDIA_TYPE)


async def who(request: Request) -> Response:
    return PlainTextResponse(principal_of(request).user)


async def refuse(_: Request) -> Response:
    raise HttpProblem(409, "No. Ask later.", 40901, retry_after_s=7)


async def fail(_: Request) -> Response:
    raise ZeroDivisionError


async def hang(_: Request) -> Response:
    await asyncio.sleep(3600)
    raise AssertionError


async def stream(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one "
        await asyncio.sleep(0.2)
        yield b"two"

    return StreamingResponse(pieces())


HANDLERS: dict[str, Callable[[Request], Awaitable[Response]]] = {
    "/echo": echo,
    "/who": who,
    "/refuse": refuse,
    "/fail": fail,
    "/hang": hang,
    "/stream": stream,
}


def application(reason: str | None = None, *, authentication: bool = False, **settings: Any) -> Starlette:
    routes = [Route(path, handler, methods=["GET", "POST"]) for path, handler in HANDLERS.items()]
    given = {"max_body_bytes": LIMIT, **settings}
    http = HttpSettings(Address("localhost", 0), authentication=authentication, **given)
    logins = Passwords() if authentication else None
    return build_application(routes, http, lambda: reason, logins=logins, media_type=MEDIA_TYPE)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    app: Starlette, path: str, *pieces: bytes, method: str = "GET", headers: dict[str, str] | None = None
) -> Answer:
    """One request whose body comes in these pieces."""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        "client": ("192.0.2.1", 1234),
        "server": ("localhost", 80),
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
    }
    incoming = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    incoming.append({"type": "http.request", "body": b"", "more_body": False})
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if incoming:
            return incoming.pop(0)
        await asyncio.sleep(3600)
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], found, b"".join(each.get("body", b"") for each in sent[1:]))


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_errors_are_json() -> None:
    answer = ask(application(), "/refuse")
    assert (answer.status, answer.json) == (409, {"error_code": 40901, "message": "No. Ask later."})
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert answer.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("path", "method", "status", "says"),
    [
        ("/nothing", "GET", 404, "there is no such path"),
        ("/echo", "DELETE", 405, "this path takes"),
    ],
)
def test_paths_and_methods_that_are_none(path: str, method: str, status: int, says: str) -> None:
    answer = ask(application(), path, method=method)
    assert (answer.status, answer.json["error_code"]) == (status, status)
    assert says in answer.json["message"]


def test_a_bug_is_logged_and_says_nothing_outside(caplog: pytest.LogCaptureFixture) -> None:
    answer = ask(application(), "/fail")
    assert (answer.status, answer.json["error_code"]) == (500, 50001)
    assert "ZeroDivision" not in answer.body.decode()
    assert "GET /fail failed" in caplog.text


def test_a_body_up_to_the_limit() -> None:
    assert ask(application(), "/echo", b"x" * LIMIT, method="POST").body == b"x" * LIMIT


@pytest.mark.parametrize("headers", [{"Content-Length": str(LIMIT + 1)}, {}], ids=["told", "found out"])
def test_a_body_beyond_the_limit_is_refused(headers: dict[str, str]) -> None:
    answer = ask(application(), "/echo", b"x" * LIMIT, b"x", method="POST", headers=headers)
    assert answer.status == 413
    assert "100 bytes" in answer.json["message"]


def test_a_request_without_answer_in_time() -> None:
    answer = ask(application(request_timeout_s=0.05), "/hang")
    assert answer.status == 503
    assert "No answer within 0.05 s" in answer.json["message"]


def test_an_answer_that_has_begun_may_take_longer() -> None:
    assert ask(application(request_timeout_s=0.05), "/stream").body == b"one two"


def test_live_and_ready() -> None:
    assert ask(application("starting"), "/live").status == 200
    assert ask(application(), "/ready").status == 200
    answer = ask(application("starting"), "/ready")
    assert (answer.status, answer.json["reason"]) == (503, "starting")


def test_without_authentication_everybody_is_anonymous() -> None:
    assert ask(application(), "/who", headers=basic("ada", "secret")).body == b"ANONYMOUS"


@pytest.mark.parametrize("headers", [basic("ada", "secret"), {"Authorization": "bearer token"}])
def test_right_logins(headers: dict[str, str]) -> None:
    assert ask(application(authentication=True), "/who", headers=headers).body == b"ada"


@pytest.mark.parametrize(
    "headers",
    [{}, basic("ada", "wrong"), {"Authorization": "Bearer x"}, {"Authorization": "Basic !"}, {"Authorization": "X y"}],
)
def test_wrong_logins(headers: dict[str, str]) -> None:
    answer = ask(application(authentication=True), "/who", headers=headers)
    assert (answer.status, answer.json["error_code"]) == (401, 40101)
    assert "Basic" in answer.headers["www-authenticate"]


def test_live_needs_no_login() -> None:
    assert ask(application(authentication=True), "/live").status == 200


def test_cors_by_setting() -> None:
    origin = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in ask(application(), "/who", headers=origin).headers
    allowed = application(cors_origins=("https://example.org",), authentication=True)
    assert ask(allowed, "/who", headers=origin).headers["access-control-allow-origin"] == "https://example.org"
    asked = {**origin, "Access-Control-Request-Method": "POST"}
    assert ask(allowed, "/who", method="OPTIONS", headers=asked).status == 200


@pytest.mark.parametrize(
    ("header", "login"),
    [
        (basic("ada", "a:b")["Authorization"], BasicLogin("ada", "a:b")),
        ("Bearer  t ", BearerLogin("t")),
        ("Basic", None),
        ("Basic " + base64.b64encode(b"\xff:x").decode(), None),
        ("Basic " + base64.b64encode(b":x").decode(), None),
        ("Bearer", None),
        ("", None),
    ],
)
def test_reading_logins(header: str, login: Login | None) -> None:
    assert read_login(header) == login


@pytest.mark.parametrize(
    ("text", "address"),
    [("localhost:1", Address("localhost", 1)), (":0", Address("", 0)), ("[::1]:8081", Address("::1", 8081))],
)
def test_addresses(text: str, address: Address) -> None:
    assert read_address(text) == address
    assert read_address(str(address)) == address


@pytest.mark.parametrize(
    "text", ["localhost", "localhost:", "localhost:x", "localhost:65536", "::1:80", "a/b:1", "a b:1"]
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(InvalidAddress):
        read_address(text)
