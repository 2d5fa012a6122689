"""SaslServer: what all logins at this broker share, and the gates of its SASL listeners."""

from collections.abc import Callable
from functools import partial

from moldau.base.session import Principal
from moldau.broker.security.authenticator import OnFailed, SaslGate
from moldau.broker.security.credentials import Credentials, token_secret
from moldau.broker.security.jwks import TokenVerifier, unsigned_claims
from moldau.broker.security.sasl_settings import OAuthSettings, SaslListener, read_sasl
from moldau.broker.security.work_pool import WorkPool
from moldau.broker.settings import BrokerConfig
from moldau.metadata.image import ClusterImage
from moldau.net.connection import FrameHandler
from moldau.security.oauth import OAuthExchange, Verify
from moldau.security.plain import PlainExchange
from moldau.security.sasl import OAUTHBEARER, PLAIN, Exchange
from moldau.security.scram import SCRAM, ScramExchange


class SaslServer:
    """`config` is called for each login: some settings change while the broker runs. `refusal` says why a principal
    cannot have another connection.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        image: Callable[[], ClusterImage],
        now: Callable[[], int],
        refusal: Callable[[Principal], str | None],
    ) -> None:
        self.credentials = Credentials(image, now, lambda: token_secret(config()))
        self.on_failed: OnFailed | None = None  # called for each failed login; set before the gates are made
        self._config = config
        self._now = now
        self._refusal = refusal
        self._pool = WorkPool()
        self._oauth_pool = WorkPool(1)  # may wait for the network
        self._verifiers: dict[OAuthSettings, TokenVerifier] = {}
        self._read: tuple[BrokerConfig, dict[str, SaslListener]] | None = None

    def gates(self, login: FrameHandler, admitted: FrameHandler) -> dict[str, SaslGate]:
        """The gates by listener. `login` serves requests until a connection is authenticated, then `admitted` does."""
        return {
            name: SaslGate(
                partial(self._settings, name),
                partial(self._new_exchange, name),
                self._pool_of,
                login,
                admitted,
                self._now,
                self._refusal,
                self.on_failed,
            )
            for name in read_sasl(self._config())
        }

    def _settings(self, listener: str) -> SaslListener:
        config = self._config()
        if self._read is None or self._read[0] is not config:
            self._read = config, read_sasl(config)
        return self._read[1][listener]

    def _new_exchange(self, listener: str, mechanism: str, nonce: str) -> Exchange:
        credentials = self.credentials
        if mechanism in SCRAM:
            return ScramExchange(SCRAM[mechanism], credentials.scram[mechanism], nonce)
        settings = self._settings(listener)
        if mechanism == OAUTHBEARER:
            assert settings.oauth is not None
            return OAuthExchange(self._verifier(settings.oauth), settings.oauth.rules, self._now)
        assert mechanism == PLAIN
        passwords = settings.passwords
        return PlainExchange(lambda user: credentials.verifiers(user, passwords.get(user)), credentials.plain_decoy)

    def _pool_of(self, mechanism: str) -> WorkPool:
        return self._oauth_pool if mechanism == OAUTHBEARER else self._pool

    def _verifier(self, oauth: OAuthSettings) -> Verify:
        """The verifier of these settings: it keeps the provider's keys."""
        if oauth.jwks_url is None:
            return unsigned_claims
        known = self._verifiers.get(oauth)
        if known is None:
            known = self._verifiers[oauth] = TokenVerifier(oauth)
        return known

    def stop(self) -> None:
        self._pool.stop()
        self._oauth_pool.stop()
