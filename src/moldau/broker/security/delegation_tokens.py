"""Delegation tokens of the cluster: changes of their documents, decided by the room security. Answers no request."""

from collections.abc import Callable

from moldau.base.errors import Refusal, WireError
from moldau.base.session import ANONYMOUS, ENCRYPTED, Principal, SecurityProtocol, Session
from moldau.broker.controller import Controller
from moldau.broker.security.authenticator import Authenticator
from moldau.broker.security.credentials import TOKENS, token_path, token_secret
from moldau.broker.settings import BrokerConfig
from moldau.metadata.changes import Change, DocumentsChanged
from moldau.metadata.image import ClusterImage
from moldau.security.tokens import DelegationToken, TokenRules, hmac_of, read_token, write_token

EXPIRED_AT_ONCE = 1_000  # tokens that one change removes at most

Decide = Callable[[DelegationToken | None], DelegationToken | Refusal | None]


def refused_requester(session: Session) -> WireError | None:
    """Tokens are for authenticated users. One that logged in with a token cannot make itself another."""
    protocol, login = session.security_protocol, session.authentication
    anonymous = protocol is SecurityProtocol.PLAINTEXT or (protocol in ENCRYPTED and session.principal == ANONYMOUS)
    if anonymous or (isinstance(login, Authenticator) and login.by_token):
        return WireError.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return None


class DelegationTokens:
    """`now`: milliseconds since the Unix epoch."""

    def __init__(self, controller: Controller, config: Callable[[], BrokerConfig], now: Callable[[], int]) -> None:
        self._controller = controller
        self._config = config
        self.now = now

    @property
    def rules(self) -> TokenRules:
        config = self._config()
        max_life_ms, renewal_ms = (
            config.values[f"delegation.token.{name}.ms"] for name in ("max.lifetime", "expiry.time")
        )
        assert isinstance(max_life_ms, int)
        assert isinstance(renewal_ms, int)
        return TokenRules(token_secret(config), max_life_ms, renewal_ms)

    def all(self) -> list[DelegationToken]:
        """The tokens that have not expired."""
        found = [read_token(text) for text in _texts(self._controller.image).values()]
        return [token for token in found if token is not None and not token.over(self.now())]

    async def add(self, token: DelegationToken) -> Refusal | None:
        result = await self._controller.submit(lambda _: DocumentsChanged({token_path(token.id): write_token(token)}))
        return result if isinstance(result, Refusal) else None

    async def change(self, hmac: bytes, decide: Decide) -> DelegationToken | Refusal | None:
        """Replace or, if None is decided, delete the token with this HMAC."""
        decided: DelegationToken | Refusal | None = None

        def change(image: ClusterImage) -> Change | Refusal:
            nonlocal decided
            token = self._by_hmac(image, hmac)
            decided = decide(token)
            if isinstance(decided, Refusal):
                return decided
            assert token is not None
            return DocumentsChanged({token_path(token.id): write_token(decided) if decided else None})

        result = await self._controller.submit(change)
        return result if isinstance(result, Refusal) else decided

    def _by_hmac(self, image: ClusterImage, hmac: bytes) -> DelegationToken | None:
        secret = token_secret(self._config())
        tokens = (read_token(text) for text in _texts(image).values()) if secret else ()
        # Not in constant time: a guess of 64 random bytes gains nothing from the time of one dictionary look-up.
        return {hmac_of(secret or "", token.id): token for token in tokens if token is not None}.get(hmac)

    async def remove_expired(self) -> None:
        """Delete the documents of expired tokens, on the controller."""
        if not self._controller.leads or not self._expired(self._controller.image):
            return
        await self._controller.submit(lambda image: DocumentsChanged(dict.fromkeys(self._expired(image))))

    def _expired(self, image: ClusterImage) -> list[str]:
        now = self.now()
        found = {path: read_token(text) for path, text in _texts(image).items()}
        return [path for path, token in found.items() if token is not None and token.over(now)][:EXPIRED_AT_ONCE]


def _texts(image: ClusterImage) -> dict[str, str]:
    return {path: text for path, text in image.documents.items() if path.startswith(TOKENS)}


def owner_of(session: Session, kind: str | None, name: str | None) -> Principal:
    """The owner that a request names, or its requester."""
    return Principal(kind or "User", name) if name else session.principal
