"""Keys of an OAuth provider (JWKS) and the verification of its tokens. The one file that imports joserfc.

Keys come from a file or a URL. They are fetched again when they are old, and when a token names a key that is not among
them; after a failure with growing pauses. All of this runs in one thread of its own: neither the event loop nor logins
with passwords wait for a slow provider.
"""

import base64
import json
import logging
import time
import urllib.request
from collections.abc import Callable
from typing import Final

from moldau.broker.security.sasl_settings import OAuthSettings
from moldau.security.oauth import Claims

logger = logging.getLogger("moldau.broker")

# Asymmetric ones only: with a public key as the secret of an HMAC anyone could sign.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
FETCH_TIMEOUT_S: Final = 10.0
LARGEST_SET: Final = 1024 * 1024  # bytes
UNKNOWN_KEY_PAUSE_S: Final = 5.0  # between fetches for tokens with unknown keys, which anyone can make up


class JwksUnavailable(Exception):
    """The keys cannot be fetched or read; the text says why."""


class TokenVerifier:
    """Verifies the signatures of tokens; used by one thread. `clock` is monotonic, in seconds."""

    def __init__(self, settings: OAuthSettings, clock: Callable[[], float] = time.monotonic) -> None:
        assert settings.jwks_url is not None
        self._settings = settings
        self._url = settings.jwks_url
        self._clock = clock
        self._keys: object | None = None
        self._key_ids: frozenset[str] = frozenset()
        self._fetched = 0.0
        self._next = 0.0  # when the next fetch may be
        self._failures = 0

    def __call__(self, token: str) -> Claims | str:
        """The claims, or why the token is refused."""
        from joserfc import jws, jwt
        from joserfc.errors import JoseError

        try:
            header = jws.extract_compact(token.encode()).headers()
        except (JoseError, ValueError):
            return "the token is no signed JWT"
        if header.get("alg") not in ALGORITHMS:
            return "the token is not signed with a known asymmetric algorithm"
        key_id = header.get("kid")
        keys = self._current(key_id if isinstance(key_id, str) else None)
        if isinstance(keys, str):
            return keys
        try:
            return jwt.decode(token, keys, algorithms=list(ALGORITHMS)).claims  # type: ignore[arg-type]
        except (JoseError, ValueError):
            return "the token's signature is wrong, or its key is unknown"

    def _current(self, key_id: str | None) -> object | str:
        """The keys, fetched again if they are old or lack this one."""
        now = self._clock()
        old = self._keys is None or now - self._fetched > self._settings.refresh_ms / 1000
        unknown = key_id is not None and key_id not in self._key_ids
        if (old or (unknown and now - self._fetched > UNKNOWN_KEY_PAUSE_S)) and now >= self._next:
            self._fetch(now)
        return self._keys if self._keys is not None else "the OAuth provider's keys are not available"

    def _fetch(self, now: float) -> None:
        try:
            self._keys, self._key_ids = _read_keys(self._url)
        except JwksUnavailable as problem:
            pause_s = min(self._settings.backoff_ms * 2**self._failures, self._settings.max_backoff_ms) / 1000
            self._failures = min(self._failures + 1, 16)
            self._next = now + pause_s
            logger.warning(
                "Cannot read the OAuth provider's keys at %s: %s; tokens are verified with %s. Check "
                "sasl.oauthbearer.jwks.endpoint.url",
                self._url,
                problem,
                "the last known keys" if self._keys is not None else "none, so they are refused",
            )
            return
        self._fetched, self._failures, self._next = now, 0, 0.0


def _read_keys(url: str) -> tuple[object, frozenset[str]]:
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    try:
        with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as response:  # load() admits file:, http: and https:
            text = response.read(LARGEST_SET + 1)
    except (OSError, ValueError) as problem:
        raise JwksUnavailable(str(problem)) from None
    if len(text) > LARGEST_SET:
        raise JwksUnavailable(f"it is larger than {LARGEST_SET} bytes")
    try:
        listed = json.loads(text)["keys"]
        public = [key for key in listed if key.get("kty") in ("RSA", "EC", "OKP")]
        keys = KeySet.import_key_set({"keys": public})
    except (AttributeError, JoseError, KeyError, TypeError, ValueError):
        raise JwksUnavailable("it is no JSON Web Key Set") from None
    if not public:
        raise JwksUnavailable("it has no RSA, EC or OKP key")
    return keys, frozenset(str(key["kid"]) for key in public if "kid" in key)


def unsigned_claims(token: str) -> Claims | str:
    """The claims of a token without checking that anyone signed it: only if a setting says so."""
    try:
        _, payload, _ = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except ValueError:
        return "the token is no JWT"
    return claims if isinstance(claims, dict) else "the token is no JWT"
