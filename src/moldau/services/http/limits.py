"""ASGI middleware: a bound on the bytes of a request, and on the time until its answer begins. Reads no body itself."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moldau.services.http.problems import OVERLOADED, HttpProblem


class BodyLimit:
    """Refuse requests with more bytes: at once if they say so, else when they come."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if told.isdigit() and int(told) > self._max_bytes:
            raise self._too_large()
        received = 0

        async def count() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise self._too_large()
            return message

        await self._app(scope, count, send)

    def _too_large(self) -> HttpProblem:
        limit = f"{self._max_bytes:,} bytes"
        return HttpProblem(413, f"The request body is larger than {limit}. Send less, or raise the service's limit.")


class TimeBound:
    """Answer 503 when a request has no answer in time. An answer that has begun may take as long as it needs."""

    def __init__(self, app: ASGIApp, *, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._seconds) as bound:

                async def begin(message: Message) -> None:
                    bound.reschedule(None)
                    await send(message)

                await self._app(scope, receive, begin)
        except TimeoutError:
            if not bound.expired():
                raise
            message = f"No answer within {self._seconds:g} s. The request may still take effect; look before you retry."
            raise HttpProblem(503, message, OVERLOADED) from None
