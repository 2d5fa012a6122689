"""Audit: turns requests, denials and failed logins of this broker's clients into records, and hands them to the writer.

Every record is made by the broker that the client is connected to: it knows the listener, and has the response also of
a request that it forwarded. A request that is sent to the controller twice is one action. A denied administrative
request is an action whose outcome is the error; the denial itself, which may be on the controller, gets no record.
"""

import logging
from collections.abc import Callable, Collection, Coroutine
from time import monotonic
from typing import Any, Final

from moldau.base.errors import WireError
from moldau.base.session import Session
from moldau.broker.call import Call
from moldau.broker.security.audit_writer import AuditWriter
from moldau.broker.security.authenticator import USER
from moldau.broker.security.denials import Denial
from moldau.net.connection import Handled
from moldau.net.reply import BadRequest, Parked, Reply
from moldau.security.audit import AuditBuffer, Client, Record, action, client_of, denial, failed_login, host_of
from moldau.security.audit_actions import Describe
from moldau.security.sasl import Failed
from moldau.wire.codec import decode
from moldau.wire.frames import LENGTH
from moldau.wire.headers import read_response_header
from moldau.wire.messages.registry import ApiMessages

logger: Final = logging.getLogger("moldau.broker")


class Audit:
    """`actions`: the names of the APIs whose requests are actions. `now`: milliseconds since the Unix epoch."""

    def __init__(
        self, buffer: AuditBuffer, writer: AuditWriter, actions: Collection[str], now: Callable[[], int]
    ) -> None:
        self.writer = writer
        self._buffer = buffer
        self._actions = frozenset(actions)
        self._now = now

    def observe(
        self, messages: ApiMessages, describe: Describe, request: object, call: Call, handled: Handled
    ) -> Handled:
        """The same reply, with a record of it once it is there: also if the client does not wait for it."""
        client = client_of(call.session)

        def note(reply: object) -> None:
            self._add(lambda: _action(client, messages, call.version, describe, request, reply))

        if handled is None or isinstance(handled, bytes | list):
            note(handled)
            return handled
        if not isinstance(handled, Parked):
            return _noted(handled, note)
        if handled.done:
            note(handled.reply)
            return handled
        parked, inner = Parked(), handled

        def done() -> None:
            note(inner.reply)
            parked.resolve(inner.reply)

        inner.on_done(done)
        return parked

    def denied(self, denied: Denial) -> None:
        if denied.api not in self._actions:
            client = Client(denied.principal, denied.host, denied.listener, denied.client_id)
            self._add(
                lambda: denial(client, denied.api, denied.operation, denied.resource, denied.name, denied.repeats)
            )

    def login_failed(self, session: Session, mechanism: str, failed: Failed) -> None:
        principal = f"{USER}:{failed.user}" if failed.user else None
        client = Client(principal, host_of(session.peer), session.listener, session.client_id)
        self._add(lambda: failed_login(client, mechanism, failed.reason))

    def _add(self, record: Callable[[], Record]) -> None:
        try:
            self._buffer.add(record(), monotonic(), self._now())
            self.writer.wake()
        except Exception:  # a bug; the audited request must not fail because of it
            logger.exception("An audit record could not be made")


async def _noted(work: Coroutine[Any, Any, Reply], note: Callable[[object], None]) -> Reply:
    reply: object = None  # of a request that failed or was cancelled: what it did is not known
    try:
        reply = answered = await work
        return answered
    finally:
        note(reply)


def _action(
    client: Client, messages: ApiMessages, version: int, describe: Describe, request: object, reply: object
) -> Record:
    validate_only = bool(getattr(request, "validate_only", False))
    if not isinstance(reply, bytes):
        assert reply is None or isinstance(reply, BadRequest)
        return action(client, messages.name, (), WireError.UNKNOWN_SERVER_ERROR, validate_only=validate_only)
    frame = memoryview(reply)[LENGTH.size :]
    at = read_response_header(messages.key, version, frame)[1]
    response: object = decode(messages.response, version, frame, at)
    error: int = getattr(response, "error_code", WireError.NONE)
    return action(client, messages.name, describe(request, response), error, validate_only=validate_only)
