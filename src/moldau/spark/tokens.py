"""Bearer tokens for SASL OAUTHBEARER: from a token endpoint, from a file or, for tests, unsigned.

A TokenSource travels to Python workers with the options; each connection calls it for a new token.
"""

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moldau.security.sasl_client import AuthenticationFailed

TIMEOUT_S = 15.0
MAX_RESPONSE_BYTES = 1 << 20
UNSIGNED_S = 3600  # lifetime of an unsigned token, as in Java's client


class TokenUnavailable(AuthenticationFailed):
    """No token is available: one sentence with the reason, never with the secret."""


@dataclass(frozen=True, slots=True)
class TokenSource:
    """An https: or http: endpoint with credentials, a file: URL, or claims of an unsigned token."""

    endpoint: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    unsigned_claims: Mapping[str, str] = field(default_factory=dict)

    def __call__(self) -> str:
        if not self.endpoint:
            return _unsigned({**self.unsigned_claims}, int(time.time()))
        if self.endpoint.lower().startswith("file:"):
            return _from_file(self.endpoint)
        return _asked(self)


def _unsigned(claims: dict[str, Any], now: int) -> str:
    claims = {"iat": now, "exp": now + UNSIGNED_S, **claims}
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


def _from_file(address: str) -> str:
    path = Path(urllib.parse.unquote(urllib.parse.urlsplit(address).path))
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as failed:
        raise TokenUnavailable(f"the token file {path} cannot be read: {failed}") from failed
    if not token:
        raise TokenUnavailable(f"the token file {path} is empty")
    return token


def _asked(source: TokenSource) -> str:
    """The client credentials grant of RFC 6749, section 4.4, with HTTP's basic authentication."""
    fields = {"grant_type": "client_credentials", **({"scope": source.scope} if source.scope else {})}
    credentials = base64.b64encode(f"{source.client_id}:{source.client_secret}".encode()).decode()
    request = urllib.request.Request(
        source.endpoint,
        data=urllib.parse.urlencode(fields).encode(),
        headers={"Authorization": f"Basic {credentials}", "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            said = json.loads(answer.read(MAX_RESPONSE_BYTES))
    except urllib.error.HTTPError as refused:
        raise TokenUnavailable(f"{source.endpoint} returned {refused.code} {refused.reason}") from None
    except OSError as failed:
        raise TokenUnavailable(f"cannot reach {source.endpoint}: {failed}") from failed
    except ValueError:
        raise TokenUnavailable(f"the response of {source.endpoint} is not JSON") from None
    token = said.get("access_token") if isinstance(said, dict) else None
    if not isinstance(token, str) or not token:
        raise TokenUnavailable(f"the response of {source.endpoint} has no access_token")
    return token
