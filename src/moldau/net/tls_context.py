"""TLS contexts from settings: certificates, trusted authorities, versions, ciphers. Opens no connections."""

import datetime
import os
import secrets
import ssl
import tempfile
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from moldau.net.key_stores import KeyPair, StoreSettings, TlsProblem, read_key_pair, read_trusted

NONE, REQUESTED, REQUIRED = "none", "requested", "required"  # ssl.client.auth
_CLIENT_AUTH = {NONE: ssl.CERT_NONE, REQUESTED: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_TLS13_CIPHERS = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The settings of one listener, or of this broker's own connections. `prefix` begins their names in messages."""

    prefix: str
    keys: StoreSettings
    trust: StoreSettings
    protocols: tuple[str, ...] = tuple(_VERSIONS)
    ciphers: tuple[str, ...] = ()
    client_auth: str = NONE
    check_host_name: bool = True


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What clients see of a certificate. A reload must not change it, unless the settings say that it may."""

    subject: x509.Name
    names: frozenset[str]

    @classmethod
    def of(cls, certificate: x509.Certificate) -> "ServerIdentity":
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return cls(certificate.subject, frozenset())
        return cls(certificate.subject, frozenset(f"{type(name).__name__}:{name.value}" for name in names))


@dataclass(frozen=True, slots=True)
class ServerTls:
    """A context for a listener, with the identity and the last day of its certificate."""

    context: ssl.SSLContext
    identity: ServerIdentity
    expires: datetime.datetime


def server_tls(settings: TlsSettings) -> ServerTls:
    """The context of a listener; TlsProblem if a setting or a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = _load_keys(context, settings)
    _limit(context, settings)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # each connection shows its certificate again, which may have expired meanwhile
    if settings.client_auth != NONE:
        _load_trusted(context, settings, ssl.Purpose.CLIENT_AUTH)
        context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    own = pair.certificates[0]
    return ServerTls(context, ServerIdentity.of(own), own.not_valid_after_utc)


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of this broker's connections to others; without a key store it shows no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.keys.given:
        _load_keys(context, settings)
    _limit(context, settings)
    _load_trusted(context, settings, ssl.Purpose.SERVER_AUTH)
    context.check_hostname = settings.check_host_name
    return context


def _load_keys(context: ssl.SSLContext, settings: TlsSettings) -> KeyPair:
    """OpenSSL loads keys from files only: they go through one that is private, encrypted, and gone at once."""
    pair = read_key_pair(settings.keys, datetime.datetime.now(datetime.UTC))
    password = secrets.token_hex()
    key = pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
    handle, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(key + b"".join(each.public_bytes(Encoding.PEM) for each in pair.certificates))
        context.load_cert_chain(path, password=password)
    except ssl.SSLError as problem:
        raise TlsProblem(f"{settings.keys.prefix}: OpenSSL refuses the certificate: {problem.reason}") from None
    finally:
        os.unlink(path)
    return pair


def _load_trusted(context: ssl.SSLContext, settings: TlsSettings, purpose: ssl.Purpose) -> None:
    if not settings.trust.given:
        context.load_default_certs(purpose)
        return
    trusted = read_trusted(settings.trust)
    context.load_verify_locations(cadata="".join(each.public_bytes(Encoding.PEM).decode() for each in trusted))
    # A trusted certificate need not be an authority's: Java trusts a broker's or client's own as well.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _limit(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Allow the versions and ciphers of the settings. A version without a cipher is not allowed.

    Python cannot choose among the ciphers of TLS 1.3: if one is named, all three are allowed.
    """
    setting, ciphers = f"{settings.prefix}ssl.enabled.protocols", f"{settings.prefix}ssl.cipher.suites"
    if not settings.protocols or set(settings.protocols) - set(_VERSIONS):
        raise TlsProblem(f"{setting} must be a list of {', '.join(_VERSIONS)}, got '{','.join(settings.protocols)}'")
    versions = {_VERSIONS[name] for name in settings.protocols}
    if settings.ciphers:
        of_13 = set(settings.ciphers) & _TLS13_CIPHERS
        older = [openssl_name(name) for name in settings.ciphers if name not in of_13]
        named = {ssl.TLSVersion.TLSv1_3} if of_13 else set()
        if older:
            named.add(ssl.TLSVersion.TLSv1_2)
            try:
                context.set_ciphers(":".join(older))
            except ssl.SSLError:
                raise TlsProblem(f"{ciphers} has no cipher suite that OpenSSL knows: {','.join(older)}") from None
        versions &= named
        if not versions:
            raise TlsProblem(f"{ciphers} has no cipher suite of {setting}: {','.join(settings.ciphers)}")
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def openssl_name(cipher: str) -> str:
    """A cipher suite of TLS 1.2 as OpenSSL calls it: ECDHE-RSA-AES128-GCM-SHA256 for TLS_ECDHE_RSA_WITH_AES_128_….

    TLS_RSA_WITH_… is without a prefix there, and CBC is not written.
    """
    if not cipher.startswith("TLS_") or "_WITH_" not in cipher:
        return cipher
    exchange, _, rest = cipher.removeprefix("TLS_").partition("_WITH_")
    rest = (
        rest.replace("AES_128", "AES128")
        .replace("AES_256", "AES256")
        .replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    )
    parts = [] if exchange == "RSA" else exchange.split("_")
    return "-".join([*parts, *(word for word in rest.split("_") if word != "CBC")])
