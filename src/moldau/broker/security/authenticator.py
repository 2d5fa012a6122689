"""Authenticator: the SASL login of one connection, and the gate before it. Mechanisms are in the room security.

A gate is the handler of a connection until it is authenticated, and nothing checks its requests afterwards. The gate
comes back when the client logs in again (KIP-368), and when the session's time is up.

    START ──SaslHandshake──▸ TOKENS ──SaslAuthenticate…──▸ DONE ──time is up──▸ EXPIRED
                               ▴                            │                      │
                               └───────SaslHandshake────────┴──────────────────────┘

Every failure ends the connection, after connection.failed.authentication.delay.ms.
"""

import asyncio
import secrets
import weakref
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from moldau.base.errors import WireError
from moldau.base.later import Later
from moldau.base.session import Principal, Session
from moldau.broker.security.work_pool import WorkPool
from moldau.net.connection import Connection, FrameHandler, Handled
from moldau.net.reply import BadRequest, Parked, Reply
from moldau.security.sasl import Authenticated, Challenge, Exchange, Failed, NeedsWork, Outcome
from moldau.wire.frames import LENGTH, MIN_FRAME_SIZE
from moldau.wire.headers import API_VERSIONS, read_request_prefix
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from moldau.wire.messages.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from moldau.broker.security.sasl_settings import SaslListener

HANDSHAKE, AUTHENTICATE = 17, 36  # API keys
NONCE_BYTES: Final = 24
REAUTH_PAUSE_S: Final = 1.0  # as in Kafka: between the starts of two re-authentications
USER: Final = "User"
LATE: Final = "SaslAuthenticate request received after successful authentication"
INTERNAL: Final = Failed("an internal error")


# Between the response to a failed login and the end of the connection: kafka-python does not read a response that comes
# together with the end, and tells its user of a lost connection.
READ_ANSWER_S: Final = 0.1


class State(Enum):
    START = "not authenticated"
    TOKENS = "authenticating"
    DONE = "authenticated"
    EXPIRED = "expired"
    FAILED = "authentication failed"


ADMITTED: Final = {
    State.START: {API_VERSIONS, HANDSHAKE},
    State.TOKENS: {AUTHENTICATE},
    State.DONE: set[int](),  # `admitted` is the handler
    State.EXPIRED: {HANDSHAKE},
    State.FAILED: set[int](),
}

NewExchange: TypeAlias = Callable[[str, str], Exchange]  # of a mechanism, with a nonce
Ended: TypeAlias = Callable[[Challenge | tuple[Authenticated, int] | Failed], None]
OnFailed: TypeAlias = Callable[[Session, str, Failed], None]  # the session, the mechanism, and why


class SaslGate:
    """The handler of a listener's connections that are not authenticated. `now`: milliseconds since the epoch."""

    def __init__(
        self,
        settings: "Callable[[], SaslListener]",
        new_exchange: NewExchange,
        pool_of: Callable[[str], WorkPool],
        login: FrameHandler,
        admitted: FrameHandler,
        now: Callable[[], int],
        refusal: Callable[[Principal], str | None],
        on_failed: OnFailed | None = None,
    ) -> None:
        self.refusal = refusal  # why a principal cannot have another connection
        self.settings = settings
        self.new_exchange = new_exchange
        self.pool_of = pool_of  # by mechanism
        self.login = login  # serves the requests of a login
        self.admitted = admitted  # serves a connection that is authenticated
        self.now = now
        self.on_failed = on_failed  # called for each failed login

    @property
    def largest_frame(self) -> int:
        return self.settings().max_receive_size

    def __call__(self, connection: Connection, frame: memoryview) -> Handled:
        session = connection.session
        authenticator = session.authentication
        if authenticator is None:
            session.security_protocol = self.settings().protocol
            authenticator = session.authentication = Authenticator(self, connection)
        assert isinstance(authenticator, Authenticator)
        if authenticator.raw:
            return authenticator.take_raw(bytes(frame))
        key = read_request_prefix(frame)[0]
        state = authenticator.state
        if key not in ADMITTED[state]:
            raise BadRequest(f"unexpected request with API key {key}: the connection is {state.value}")
        return self.login(connection, frame)


class Authenticator:
    """In `Session.authentication` of a connection on a SASL listener, as long as the connection lives."""

    def __init__(self, gate: SaslGate, connection: Connection) -> None:
        self.state = State.START
        self.raw = False  # SaslHandshake 0: tokens come without Kafka's header
        self.by_token = False  # the user logged in with a delegation token
        self._gate = gate
        self._connection = connection
        self._settings = gate.settings()
        self._loop = asyncio.get_running_loop()
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._principal: Principal | None = None  # of the first login
        self._first_mechanism = ""  # of the first login, if this is another
        self._begun = -REAUTH_PAUSE_S  # when the last re-authentication began
        self._expires: asyncio.TimerHandle | None = None

    # ── SaslHandshake ──

    def handshake(self, mechanism: str, version: int) -> SaslHandshakeResponse | Later[SaslHandshakeResponse]:
        self._settings = settings = self._gate.settings()
        if self.state is State.DONE and not self._may_begin_again():
            return SaslHandshakeResponse(error_code=WireError.ILLEGAL_SASL_STATE, mechanisms=())
        offered = settings.mechanisms
        if mechanism not in offered:
            response = SaslHandshakeResponse(error_code=WireError.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered)
            later: Later[SaslHandshakeResponse] = Later()
            self._fail(Failed("unsupported SASL mechanism"), lambda: later.resolve(response))
            return later
        if self.state is not State.START:
            self._first_mechanism, self._begun = self._mechanism, self._loop.time()
        self._mechanism = mechanism
        self._exchange = self._gate.new_exchange(mechanism, secrets.token_urlsafe(NONCE_BYTES))
        self.state = State.TOKENS
        self.raw = version == 0
        smallest = 1 if self.raw else MIN_FRAME_SIZE
        self._connection.hand_over(self._gate, largest=settings.max_receive_size, smallest=smallest)
        return SaslHandshakeResponse(error_code=WireError.NONE, mechanisms=offered)

    def _may_begin_again(self) -> bool:
        """As in Kafka: if the session ends some time, and not within a second of the last time."""
        return self._expires is not None and self._loop.time() - self._begun >= REAUTH_PAUSE_S

    # ── tokens ──

    def authenticate(self, data: bytes) -> SaslAuthenticateResponse | Later[SaslAuthenticateResponse]:
        if self.state is not State.TOKENS:
            return SaslAuthenticateResponse(error_code=WireError.ILLEGAL_SASL_STATE, error_message=LATE, auth_bytes=b"")
        later: Later[SaslAuthenticateResponse] = Later()

        def ended(outcome: Challenge | tuple[Authenticated, int] | Failed) -> None:
            later.resolve(self._response(outcome))

        self._step(data, ended)
        return later

    def _response(self, outcome: Challenge | tuple[Authenticated, int] | Failed) -> SaslAuthenticateResponse:
        if isinstance(outcome, Failed):
            return SaslAuthenticateResponse(
                error_code=WireError.SASL_AUTHENTICATION_FAILED,
                error_message=outcome.told or self._standard_text(),
                auth_bytes=b"",
            )
        last, lifetime_ms = (outcome, 0) if isinstance(outcome, Challenge) else outcome
        return SaslAuthenticateResponse(
            error_code=WireError.NONE, error_message=None, auth_bytes=last.data, session_lifetime_ms=lifetime_ms
        )

    def _standard_text(self) -> str:
        """It tells nothing about the user: not even whether there is one."""
        what = "re-authentication" if self._first_mechanism else "authentication"
        return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self._mechanism}"

    def take_raw(self, token: bytes) -> Reply:
        """A token without a header; the response has none either, and a failure has no response."""
        parked = Parked()

        def ended(outcome: Challenge | tuple[Authenticated, int] | Failed) -> None:
            if isinstance(outcome, Failed):
                parked.resolve(None)
                return
            last = outcome if isinstance(outcome, Challenge) else outcome[0]
            parked.resolve(LENGTH.pack(len(last.data)) + last.data)

        self._step(token, ended)
        if parked.done:
            assert not isinstance(parked.reply, BadRequest)
            return parked.reply
        return parked

    def _step(self, data: bytes, ended: Ended) -> None:
        """Give the token to the exchange. `ended` is called with what to answer, now or later."""
        assert self._exchange is not None
        if self._first_mechanism not in ("", self._mechanism):
            told = f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication"
            failed = Failed("another mechanism", f"{told} of mechanism '{self._first_mechanism}'")
            self._fail(failed, lambda: ended(failed))
            return
        outcome = self._exchange.step(data)
        if not isinstance(outcome, NeedsWork):
            self._settle(outcome, ended)
            return
        connection = self._connection
        connection.hold()

        def done(outcome: Outcome | None) -> None:
            self._settle(outcome or INTERNAL, ended)
            if self.state is not State.FAILED:
                connection.release()

        self._gate.pool_of(self._mechanism).submit(outcome.run, done, lambda: not connection.closed)

    # ── the end of a login ──

    def _settle(self, outcome: Outcome, ended: Ended) -> None:
        assert not isinstance(outcome, NeedsWork)
        if isinstance(outcome, Authenticated):
            outcome_or_failed = self._accept(outcome)
            if not isinstance(outcome_or_failed, Failed):
                ended((outcome, outcome_or_failed))
                return
            outcome = outcome_or_failed
        if isinstance(outcome, Challenge):
            ended(outcome)
        else:
            failed = outcome
            self._fail(failed, lambda: ended(failed))

    def _accept(self, login: Authenticated) -> int | Failed:
        """Let the connection through; returns the session's lifetime in milliseconds, 0 for no limit."""
        session = self._connection.session
        principal = Principal(USER, login.user)
        if self._principal not in (None, principal):
            told = f"Cannot change principals during re-authentication from {_dotted(session.principal)}"
            return Failed("another user", f"{told}: {_dotted(principal)}")
        if self._principal is None and (reason := self._gate.refusal(principal)) is not None:
            return Failed(reason, f"Authentication failed: {reason}")
        session.principal = self._principal = principal
        self.by_token = login.by_token
        self._exchange = None
        self.raw = False
        self.state = State.DONE
        self._connection.hand_over(self._gate.admitted)
        return self._limit(login.expires_ms)

    def _limit(self, expires_ms: int | None) -> int:
        """Set the end of the session: of the credential, or of connections.max.reauth.ms if that is sooner."""
        if self._expires is not None:
            self._expires.cancel()
            self._expires = None
        limits = [each for each in (self._settings.reauth_ms.get(self._mechanism, 0),) if each > 0]
        if expires_ms is not None:
            limits.append(max(expires_ms - self._gate.now(), 0))
        if not limits:
            return 0
        expired = weakref.WeakMethod(self._expire)  # the timer must not keep a closed connection in memory

        def end() -> None:
            if (expire := expired()) is not None:
                expire()

        self._expires = self._loop.call_later(min(limits) / 1000, end)
        return min(limits)

    def _expire(self) -> None:
        """The next request has to be a SaslHandshake, or ends the connection."""
        if self.state is State.DONE and not self._connection.closed:
            self.state = State.EXPIRED
            self._connection.hand_over(self._gate, largest=self._settings.max_receive_size)

    def _fail(self, failed: Failed, answer: Callable[[], None]) -> None:
        """Answer after a while, so that guessing is slow, and close the connection."""
        self.state = State.FAILED
        self._exchange = None
        connection = self._connection
        connection.hold()
        if self._gate.on_failed is not None:
            self._gate.on_failed(connection.session, self._mechanism, failed)

        def end() -> None:
            if not connection.closed:
                answer()
                self._loop.call_later(READ_ANSWER_S, close)

        def close() -> None:
            mechanism = f" with {self._mechanism}" if self._mechanism else ""
            connection.close(f"authentication{mechanism} failed: {failed.reason}")

        self._loop.call_later(self._settings.failure_delay_ms / 1000, end)


def _dotted(principal: Principal) -> str:
    return f"{principal.kind}.{principal.name}"
