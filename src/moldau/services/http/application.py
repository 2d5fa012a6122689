"""The ASGI application of a service: its routes, `/live` and `/ready`, and everything around a request.

From outside in: CORS, errors as JSON, authentication, time bound, body limit, routes.
"""

import logging
from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moldau.services.http.authentication import Authentication, Logins
from moldau.services.http.limits import BodyLimit, TimeBound
from moldau.services.http.problems import INTERNAL, HttpProblem, json_response
from moldau.services.http.settings import HttpSettings

logger = logging.getLogger("moldau.services")

JSON = "application/json"

NotReady = Callable[[], str | None]  # why the service cannot answer now; None if it can


def build_application(
    routes: Sequence[BaseRoute],
    settings: HttpSettings,
    not_ready: NotReady,
    *,
    logins: Logins | None = None,
    media_type: str = JSON,
) -> Starlette:
    """An application that answers every error with JSON of `media_type`."""
    if settings.authentication and logins is None:
        raise ValueError("authentication needs logins to ask")

    async def live(_: Request) -> Response:
        return json_response({"status": "live"}, JSON)

    async def ready(_: Request) -> Response:
        reason = not_ready()
        if reason is None:
            return json_response({"status": "ready"}, JSON)
        return json_response({"status": "not ready", "reason": reason}, JSON, 503)

    around = [
        Middleware(ErrorsAsJson, media_type=media_type),
        Middleware(Authentication, logins=logins if settings.authentication else None),
        Middleware(TimeBound, seconds=settings.request_timeout_s),
        Middleware(BodyLimit, max_bytes=settings.max_body_bytes),
    ]
    if settings.cors_origins:
        cors = Middleware(
            CORSMiddleware, allow_origins=list(settings.cors_origins), allow_methods=["*"], allow_headers=["*"]
        )
        around.insert(0, cors)

    async def refuse(_: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        return HttpProblem(problem.status_code, explain(problem)).response(media_type)

    return Starlette(
        routes=[Route("/live", live), Route("/ready", ready), *routes],
        middleware=around,
        exception_handlers={HTTPException: refuse},
    )


def explain(problem: HTTPException) -> str:
    """What to do about an error that the framework found."""
    if problem.status_code == 404:
        return "HTTP 404 Not Found: there is no such path. Check the address."
    if problem.status_code == 405:
        allowed = (problem.headers or {}).get("Allow", "")
        return f"HTTP 405 Method Not Allowed: this path takes {allowed}."
    return problem.detail


class ErrorsAsJson:
    """The one place that turns raised errors into answers. Bugs are logged with their traceback."""

    def __init__(self, app: ASGIApp, *, media_type: str) -> None:
        self._app = app
        self._media_type = media_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def note(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, note)
        except ClientDisconnect:
            return
        except HttpProblem as problem:
            if begun:
                raise
            await problem.response(self._media_type)(scope, receive, send)
        except Exception:
            if begun or scope["type"] != "http":
                raise
            logger.exception("%s %s failed; this is a bug", scope["method"], scope["path"])
            bug = HttpProblem(500, "Internal error; the service's log has the details.", INTERNAL)
            await bug.response(self._media_type)(scope, receive, send)
