"""TLS of a broker: the settings of each listener, of connections to other brokers and of those to ZooKeeper; reloads.

A listener's context is replaced when its settings or files change. Connections that are open keep theirs. A new
certificate that cannot be used is refused, and the old one stays.
"""

import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from moldau.base.session import ENCRYPTED, SecurityProtocol
from moldau.base.settings import Value
from moldau.broker.listener_settings import Listener
from moldau.broker.settings import BrokerConfig
from moldau.net.key_stores import JKS, PEM, PKCS12, StoreSettings, TlsProblem, files_of
from moldau.net.tls_context import NONE, ServerIdentity, ServerTls, TlsSettings, client_context, server_tls
from moldau.net.tls_handshakes import TlsListener
from moldau.security.principals import BadRules, MappingRule, read_rules

logger = logging.getLogger("moldau.broker")

_ENDINGS = {".pem": PEM, ".p12": PKCS12, ".pfx": PKCS12, ".jks": JKS}

Stamp = tuple[tuple[str, int, int], ...]  # files with their size and time of change


@dataclass(slots=True)
class _Loaded:
    settings: TlsSettings
    stamp: Stamp
    refused: tuple[TlsSettings, Stamp] | None  # tried in vain, and not again until something changes
    identity: ServerIdentity
    listener: TlsListener
    client: ssl.SSLContext | None  # of the inter-broker listener: for connections to other brokers


class BrokerTls:
    """`inter_broker` is the name of the listener between brokers. TlsProblem if the settings cannot be used."""

    def __init__(self, config: BrokerConfig, inter_broker: str) -> None:
        self._inter_broker = inter_broker
        self._loaded: dict[str, _Loaded] = {}
        for listener in config.listeners:
            if listener.protocol in ENCRYPTED:
                settings, rules = settings_of(config, listener), rules_of(config, listener)
                made, client = self._make(settings, listener)
                shown = TlsListener(listener.name, made.context, rules)
                stamp = _stamp(settings)
                self._loaded[listener.name] = _Loaded(settings, stamp, None, made.identity, shown, client)

    def listener(self, name: str) -> TlsListener | None:
        """The TLS side of a listener; None if it has none."""
        loaded = self._loaded.get(name)
        return loaded.listener if loaded else None

    def client_context(self) -> ssl.SSLContext | None:
        """The context for connections to other brokers as it is now; None if they are not encrypted."""
        loaded = self._loaded.get(self._inter_broker)
        return loaded.client if loaded else None

    def problem(self, config: BrokerConfig) -> str | None:
        """Why the broker could not change to these settings; None if it could."""
        for listener in config.listeners:
            loaded = self._loaded.get(listener.name)
            settings = settings_of(config, listener) if loaded else None
            if loaded and settings and settings != loaded.settings:
                try:
                    made, _ = self._make(settings, listener)
                    _check_identity(loaded, made, config, listener)
                except TlsProblem as problem:
                    return f"Listener {listener.name} cannot use these settings: {problem}"
        return None

    def adapt(self, config: BrokerConfig) -> None:
        """Change to the settings, and read files that changed. What cannot be used is logged, and the old one stays."""
        for listener in config.listeners:
            loaded = self._loaded.get(listener.name)
            if loaded is None:
                continue
            settings, stamp = settings_of(config, listener), _stamp(settings_of(config, listener))
            if (settings, stamp) in ((loaded.settings, loaded.stamp), loaded.refused):
                continue
            try:
                made, client = self._make(settings, listener)
                _check_identity(loaded, made, config, listener)
            except TlsProblem as problem:
                loaded.refused = (settings, stamp)
                logger.error("Listener %s keeps its old certificate and TLS settings: %s", listener.name, problem)
                continue
            loaded.settings, loaded.stamp, loaded.refused = settings, stamp, None
            loaded.identity, loaded.client, loaded.listener.context = made.identity, client, made.context
            logger.info(
                "Listener %s has new TLS settings or a new certificate, valid until %s; open connections keep the old",
                listener.name,
                f"{made.expires:%Y-%m-%d %H:%M} UTC",
            )

    def _make(self, settings: TlsSettings, listener: Listener) -> tuple[ServerTls, ssl.SSLContext | None]:
        client = client_context(settings) if listener.name == self._inter_broker else None
        return server_tls(settings), client


def _check_identity(loaded: _Loaded, made: ServerTls, config: BrokerConfig, listener: Listener) -> None:
    """As Kafka: a certificate of another subject is probably a mistake, and clients would no longer connect."""
    values = config.of_listener(listener.name)
    if made.identity.subject != loaded.identity.subject and not values["ssl.allow.dn.changes"]:
        old, new = loaded.identity.subject.rfc4514_string(), made.identity.subject.rfc4514_string()
        raise TlsProblem(
            f"the new certificate has another subject ({new} instead of {old}); set ssl.allow.dn.changes=true"
        )
    if not made.identity.names >= loaded.identity.names and not values["ssl.allow.san.changes"]:
        gone = ", ".join(sorted(loaded.identity.names - made.identity.names))
        raise TlsProblem(
            f"the new certificate lacks alternative names of the old ({gone}); set ssl.allow.san.changes=true"
        )


def settings_of(config: BrokerConfig, listener: Listener) -> TlsSettings:
    """The TLS settings of a listener."""
    values = config.of_listener(listener.name)
    overridden = f"listener.name.{listener.name.lower()}."
    prefix = overridden if config.overrides.has(listener.name, "ssl.keystore.location") else ""
    auth = str(values["ssl.client.auth"])
    if listener.protocol is SecurityProtocol.SASL_SSL and not config.overrides.has(listener.name, "ssl.client.auth"):
        auth = NONE  # KIP-684: there clients authenticate with SASL, unless the listener itself says otherwise
    return TlsSettings(
        prefix=prefix,
        keys=StoreSettings(
            prefix=f"{prefix}ssl.keystore",
            kind=str(values["ssl.keystore.type"]).upper(),
            location=_text(values["ssl.keystore.location"]),
            password=_text(values["ssl.keystore.password"]),
            key=_text(values["ssl.keystore.key"]),
            chain=_text(values["ssl.keystore.certificate.chain"]),
            key_password=_text(values["ssl.key.password"]),
            key_password_setting=f"{prefix}ssl.key.password",
        ),
        trust=StoreSettings(
            prefix=f"{prefix}ssl.truststore",
            kind=str(values["ssl.truststore.type"]).upper(),
            location=_text(values["ssl.truststore.location"]),
            password=_text(values["ssl.truststore.password"]),
            chain=_text(values["ssl.truststore.certificates"]),
            chain_setting="certificates",
        ),
        protocols=_words(values["ssl.enabled.protocols"]),
        ciphers=_words(values["ssl.cipher.suites"]),
        client_auth=auth,
        check_host_name=bool(values["ssl.endpoint.identification.algorithm"]),
    )


def rules_of(config: BrokerConfig, listener: Listener) -> tuple[MappingRule, ...]:
    try:
        return read_rules(str(config.of_listener(listener.name)["ssl.principal.mapping.rules"]))
    except BadRules as problem:
        raise TlsProblem(f"ssl.principal.mapping.rules: {problem}") from None


def zookeeper_context(values: Mapping[str, Value]) -> ssl.SSLContext | None:
    """The context for connections to ZooKeeper; None without zookeeper.ssl.client.enable."""
    if not values["zookeeper.ssl.client.enable"]:
        return None
    name = "zookeeper.ssl.{}.{}"
    stores = {}
    for part in ("keystore", "truststore"):
        location = _text(values[name.format(part, "location")])
        ending = os.path.splitext(location or "")[1].lower()
        kind = str(values[name.format(part, "type")] or _ENDINGS.get(ending, JKS)).upper()
        password = _text(values[name.format(part, "password")])
        of_key = kind == PEM and part == "keystore"
        stores[part] = StoreSettings(
            prefix=f"zookeeper.ssl.{part}",
            kind=kind,
            location=location,
            password=None if of_key else password,
            key_password=password if of_key else None,
            key_password_setting=f"zookeeper.ssl.{part}.password",
        )
    settings = TlsSettings(
        prefix="zookeeper.",
        keys=stores["keystore"],
        trust=stores["truststore"],
        protocols=_words(values["zookeeper.ssl.enabled.protocols"]) or ("TLSv1.2", "TLSv1.3"),
        ciphers=_words(values["zookeeper.ssl.cipher.suites"]),
        check_host_name=bool(values["zookeeper.ssl.endpoint.identification.algorithm"]),
    )
    return client_context(settings)


def _stamp(settings: TlsSettings) -> Stamp:
    stamps = []
    for path in files_of((settings.keys, settings.trust)):
        try:
            found = os.stat(path)
        except OSError:
            stamps.append((path, -1, -1))
        else:
            stamps.append((path, found.st_size, found.st_mtime_ns))
    return tuple(stamps)


def _text(value: Value) -> str | None:
    return str(value) if value else None


def _words(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
