"""Settings of SASL by listener and mechanism, typed and checked. They hold passwords, which no message shows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final, Protocol

from moldau.base.session import AUTHENTICATED, SecurityProtocol
from moldau.base.settings import SettingError, Value
from moldau.broker.listener_settings import Listener
from moldau.security.jaas import Login, read_jaas
from moldau.security.oauth import ClaimRules
from moldau.security.sasl import OAUTHBEARER, PLAIN
from moldau.security.sasl_client import Sasl
from moldau.security.scram import SCRAM

MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER)
JAAS, ENABLED, BETWEEN_BROKERS = "sasl.jaas.config", "sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol"
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
UNSIGNED = "sasl.oauthbearer.unsafe.accept.unsigned.tokens.from.anyone"
USER_PREFIX = "user_"
MODULES: Final = {
    PLAIN: "PlainLoginModule",
    OAUTHBEARER: "OAuthBearerLoginModule",
    **dict.fromkeys(SCRAM, "ScramLoginModule"),
}


class Config(Protocol):
    """The part of `BrokerConfig` that SASL needs."""

    @property
    def listeners(self) -> tuple[Listener, ...]: ...

    @property
    def values(self) -> Mapping[str, Value]: ...

    def of_listener(self, listener: str, mechanism: str = "") -> Mapping[str, Value]: ...


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Of one listener. The URL is None if tokens are accepted without a signature."""

    jwks_url: str | None
    refresh_ms: int
    backoff_ms: int
    max_backoff_ms: int
    rules: ClaimRules


@dataclass(frozen=True, slots=True)
class SaslListener:
    """SASL of one listener."""

    protocol: SecurityProtocol
    mechanisms: tuple[str, ...]
    max_receive_size: int
    failure_delay_ms: int
    reauth_ms: Mapping[str, int]  # by mechanism; 0: no limit
    passwords: Mapping[str, str] = field(repr=False)  # of the JAAS string's users, for PLAIN
    oauth: OAuthSettings | None


def read_sasl(config: Config) -> dict[str, SaslListener]:
    """SASL of each listener that has it. The settings were checked by `sasl_problems`."""
    return {each.name: _read(config, each) for each in config.listeners if each.protocol in AUTHENTICATED}


def _read(config: Config, listener: Listener) -> SaslListener:
    values = config.of_listener(listener.name)
    mechanisms = _mechanisms(values)
    login = _login(config, listener.name, PLAIN) if PLAIN in mechanisms else None
    options = login.options if isinstance(login, Login) else {}
    return SaslListener(
        protocol=listener.protocol,
        mechanisms=mechanisms,
        max_receive_size=_number(values["sasl.server.max.receive.size"]),
        failure_delay_ms=_number(values["connection.failed.authentication.delay.ms"]),
        reauth_ms={
            each: _number(config.of_listener(listener.name, each)["connections.max.reauth.ms"]) for each in mechanisms
        },
        passwords={
            name.removeprefix(USER_PREFIX): value for name, value in options.items() if name.startswith(USER_PREFIX)
        },
        oauth=_oauth(config.of_listener(listener.name, OAUTHBEARER)) if OAUTHBEARER in mechanisms else None,
    )


def _oauth(values: Mapping[str, Value]) -> OAuthSettings:
    issuer, audiences = values["sasl.oauthbearer.expected.issuer"], values["sasl.oauthbearer.expected.audience"]
    return OAuthSettings(
        jwks_url=None if values[UNSIGNED] else str(values[JWKS_URL]),
        refresh_ms=_number(values["sasl.oauthbearer.jwks.endpoint.refresh.ms"]),
        backoff_ms=_number(values["sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"]),
        max_backoff_ms=_number(values["sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"]),
        rules=ClaimRules(
            issuer=str(issuer) if issuer else None,
            audiences=audiences if isinstance(audiences, tuple) else (),
            scope_claim=str(values["sasl.oauthbearer.scope.claim.name"]),
            subject_claim=str(values["sasl.oauthbearer.sub.claim.name"]),
            skew_s=_number(values["sasl.oauthbearer.clock.skew.seconds"]),
            organisation_claim=str(values["sasl.oauthbearer.organisation.claim.name"]),
        ),
    )


def own_login(config: Config, listener: str) -> Sasl | None:
    """How this broker logs in at other brokers' inter-broker listener; None if that listener has no SASL."""
    if not any(each.name == listener and each.protocol in AUTHENTICATED for each in config.listeners):
        return None
    mechanism = str(config.of_listener(listener)[BETWEEN_BROKERS])
    login = _login(config, listener, mechanism)
    if not isinstance(login, Login) or not {"username", "password"} <= login.options.keys():
        return None  # of a single node: for those of a cluster `sasl_problems` has checked it
    return Sasl(mechanism, login.options["username"], login.options["password"])


def sasl_problems(config: Config, inter_broker: str | None = None) -> Iterator[SettingError]:
    """What is wrong with the SASL settings. `inter_broker` is the inter-broker listener of a cluster."""
    for listener in config.listeners:
        if listener.protocol not in AUTHENTICATED:
            continue
        values = config.of_listener(listener.name)
        mechanisms = _mechanisms(values)
        where = f"on listener {listener.name}"
        if not mechanisms:
            yield SettingError(ENABLED, f"{ENABLED} must name a mechanism {where}: {', '.join(MECHANISMS)}")
        for mechanism in mechanisms:
            if mechanism not in MECHANISMS:
                words = f"{ENABLED} has {mechanism} {where}, which is not supported; write {', '.join(MECHANISMS)}"
                yield SettingError(ENABLED, words)
            elif isinstance(login := _login(config, listener.name, mechanism), str):
                yield SettingError(JAAS, f"{JAAS} of {mechanism} {where} must {login}")
        if OAUTHBEARER in mechanisms:
            yield from _oauth_problems(config.of_listener(listener.name, OAUTHBEARER), where)
        if listener.name == inter_broker:
            yield from _login_problems(config, listener.name, mechanisms)


def sasl_warnings(config: Config) -> list[str]:
    """Settings that leave a listener open."""
    return [
        f"{UNSIGNED} is true on listener {name}: every client is the user that it says it is; set it to false"
        for name, listener in read_sasl(config).items()
        if listener.oauth is not None and listener.oauth.jwks_url is None
    ]


def _oauth_problems(values: Mapping[str, Value], where: str) -> Iterator[SettingError]:
    if not values[UNSIGNED] and find_spec("joserfc") is None:
        words = "needs the package joserfc: pip install 'moldau[oauth]'"
        yield SettingError(ENABLED, f"{ENABLED} has OAUTHBEARER {where}, which {words}")
    url = str(values[JWKS_URL] or "")
    if not values[UNSIGNED] and not url.startswith(("file:", "https:", "http:")):
        words = f"{JWKS_URL} must be a URL with file:, https: or http: for OAUTHBEARER {where}"
        yield SettingError(JWKS_URL, f"{words}, got '{url}'" if url else words)


def _login_problems(config: Config, listener: str, mechanisms: tuple[str, ...]) -> Iterator[SettingError]:
    """Whether this broker can log in at the others."""
    mechanism = str(config.of_listener(listener)[BETWEEN_BROKERS])
    supported = [each for each in mechanisms if each != OAUTHBEARER and each in MECHANISMS]
    if mechanism not in supported:
        words = f"{BETWEEN_BROKERS} must be one of {ENABLED} of the inter-broker listener {listener}"
        yield SettingError(BETWEEN_BROKERS, f"{words} ({', '.join(supported) or 'none that works'}), got {mechanism}")
        return
    login = _login(config, listener, mechanism)
    if login is None or (isinstance(login, Login) and not {"username", "password"} <= login.options.keys()):
        name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"
        yield SettingError(JAAS, f"{name} must have username and password: brokers log in at each other with them")


def _login(config: Config, listener: str, mechanism: str) -> Login | str | None:
    """The mechanism's JAAS string; a text says what is wrong with it. None: there is none, or it is of another."""
    text = config.of_listener(listener, mechanism)[JAAS]
    if not text:
        return None
    login = read_jaas(str(text))
    if isinstance(login, Login) and login.module != MODULES.get(mechanism):
        return None
    return login


def _mechanisms(values: Mapping[str, Value]) -> tuple[str, ...]:
    found = values[ENABLED]
    return tuple(dict.fromkeys(each.upper() for each in found)) if isinstance(found, tuple) else ()


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value
