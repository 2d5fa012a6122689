"""BrokerLogins: a login is right if a broker accepts it by SASL. Keeps no passwords, only keyed hashes.

A login that was accepted counts for a while without asking again. A wrong one is asked about each time, by few threads,
so guessing is slow; when too many wait, the answer is 503.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from moldau.client.direct.connection import Connection
from moldau.client.direct.security import Security
from moldau.security.sasl_client import AuthenticationFailed, Sasl
from moldau.services.http.authentication import BasicLogin, Login
from moldau.services.http.problems import OVERLOADED, HttpProblem

CLIENT_ID: Final = "moldau-http-login"
REMEMBERED_S: Final = 30.0  # a login that was changed or withdrawn may work so long
REMEMBERED_LOGINS: Final = 10_000
THREADS: Final = 4
WAITING_LOGINS: Final = 200
TIMEOUT_S: Final = 10.0
OAUTHBEARER: Final = "OAUTHBEARER"


class BrokerLogins:
    """Logs in at the first broker that answers. `mechanism` is for user and password: PLAIN or a SCRAM."""

    def __init__(
        self,
        brokers: Sequence[tuple[str, int]],
        security: Security,
        *,
        mechanism: str = "SCRAM-SHA-512",
        user_claim: str = "sub",
    ) -> None:
        self._brokers = list(brokers)
        self._tls = security.tls
        self._mechanism = mechanism
        self._user_claim = user_claim
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._waiting = 0
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="moldau-http-login")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def user_of(self, login: Login) -> str | None:
        digest = self._digest(login)
        known = self._right.get(digest)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        if self._waiting >= WAITING_LOGINS:
            raise HttpProblem(503, "Too many logins are being checked. Try again.", OVERLOADED, retry_after_s=1)
        self._waiting += 1
        try:
            user = await asyncio.get_running_loop().run_in_executor(self._pool, self._ask, login)
        finally:
            self._waiting -= 1
        if user is not None:
            self._remember(digest, user)
        return user

    def _remember(self, digest: bytes, user: str) -> None:
        self._right[digest] = (time.monotonic() + REMEMBERED_S, user)
        self._right.move_to_end(digest)
        while len(self._right) > REMEMBERED_LOGINS:
            self._right.popitem(last=False)

    def _digest(self, login: Login) -> bytes:
        text = f"{login.username}\0{login.password}" if isinstance(login, BasicLogin) else login.token
        return hashlib.blake2b(text.encode(errors="replace"), key=self._key).digest()

    def _ask(self, login: Login) -> str | None:
        sasl, user = self._sasl(login)
        problem: OSError | None = None
        for host, port in self._brokers:
            try:
                Connection(host, port, Security(self._tls, sasl), client_id=CLIENT_ID, timeout_s=TIMEOUT_S).close()
            except AuthenticationFailed:
                return None
            except OSError as lost:
                problem = lost
            else:
                return user
        message = f"No broker can check the login now: {problem}. Try again."
        raise HttpProblem(503, message, OVERLOADED, retry_after_s=1) from problem

    def _sasl(self, login: Login) -> tuple[Sasl, str]:
        if isinstance(login, BasicLogin):
            return Sasl(self._mechanism, login.username, login.password), login.username
        return Sasl(OAUTHBEARER, token=login.token), claim_of(login.token, self._user_claim)


def claim_of(token: str, claim: str) -> str:
    """A claim of a JSON Web Token that the broker verifies; empty if there is none, which is no user's name."""
    try:
        body = token.split(".")[1]
        value = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))).get(claim, "")
    except (IndexError, binascii.Error, ValueError, AttributeError):
        return ""
    return str(value)
