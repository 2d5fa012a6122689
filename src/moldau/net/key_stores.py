"""Key stores and trust stores: PEM and PKCS#12, from files or from settings. Makes no TLS contexts.

Every problem names the setting, the file, and the remedy. Java's own format is not read: keytool converts it.
"""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
_JAVA_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS
_PEM_START = b"-----BEGIN"
_KEY_ENDS = b"PRIVATE KEY-----"


class TlsProblem(Exception):
    """A setting of TLS that cannot be used; the text names it, the file, and what to do."""


class StoreSettings(NamedTuple):
    """Where a key store or trust store is. `prefix` begins the settings' names: `ssl.keystore`."""

    prefix: str
    kind: str  # PEM, PKCS12 or JKS
    location: str | None
    password: str | None
    key: str | None = None  # PEM text
    chain: str | None = None  # PEM text, of certificates
    chain_setting: str = "certificate.chain"
    key_password: str | None = None
    key_password_setting: str = ""

    @property
    def given(self) -> bool:
        return bool(self.location or self.chain)


class KeyPair(NamedTuple):
    """A private key and its certificates, the key's own first."""

    key: PrivateKeyTypes
    certificates: tuple[x509.Certificate, ...]


def read_key_pair(store: StoreSettings, now: datetime.datetime) -> KeyPair:
    """The private key and the certificates; TlsProblem if they cannot be read, do not belong together, or expired."""
    where, content = _content(store)
    if _is_pem(store):
        pair = _pem_pair(store, where, content)
    else:
        found = _pkcs12(store, where, content)
        if found.key is None or found.cert is None:
            raise TlsProblem(f"{where} has no private key with its certificate; make it with both")
        others = tuple(each.certificate for each in found.additional_certs)
        pair = KeyPair(found.key, _ordered(found.cert.certificate, others))
    own = pair.certificates[0]
    if pair.key.public_key() != own.public_key():
        name = own.subject.rfc4514_string()
        raise TlsProblem(f"{where}: the private key is not that of the first certificate ({name})")
    if own.not_valid_after_utc < now:
        raise TlsProblem(f"{where}: the certificate expired on {own.not_valid_after_utc:%Y-%m-%d}; renew it")
    return pair


def read_trusted(store: StoreSettings) -> tuple[x509.Certificate, ...]:
    """The certificates of a trust store; TlsProblem if there are none."""
    where, content = _content(store)
    if _is_pem(store):
        return _pem_certificates(where, content)
    found = _pkcs12(store, where, content)
    trusted = [each.certificate for each in found.additional_certs]
    if found.cert is not None:
        trusted.append(found.cert.certificate)
    if not trusted:
        raise TlsProblem(f"{where} has no certificates")
    return tuple(trusted)


def files_of(stores: Sequence[StoreSettings]) -> list[str]:
    """The files that have to be watched for changes."""
    return [store.location for store in stores if store.location]


def _content(store: StoreSettings) -> tuple[str, bytes]:
    """The bytes of a store, and how messages call it."""
    if store.chain is not None:
        setting = f"{store.prefix}.{store.chain_setting}"
        if store.kind != PEM:
            raise TlsProblem(f"{setting} is PEM text, so {store.prefix}.type must be PEM, got {store.kind}")
        return setting, f"{store.key or ''}\n{store.chain}".encode()
    setting = f"{store.prefix}.location"
    if not store.location:
        raise TlsProblem(f"{setting} is missing: name the file with the private key and its certificates")
    where = f"{setting} {store.location}"
    try:
        return where, Path(store.location).read_bytes()
    except OSError as problem:
        raise TlsProblem(f"{where} cannot be read: {problem.strerror}") from None


def _is_pem(store: StoreSettings) -> bool:
    if store.kind == PEM and store.password:
        words = f"{store.prefix}.password cannot be given with PEM"
        raise TlsProblem(
            f"{words}; the password of an encrypted key is {store.key_password_setting or 'ssl.key.password'}"
        )
    return store.kind == PEM


def _pem_pair(store: StoreSettings, where: str, content: bytes) -> KeyPair:
    start = content.find(_PEM_START)
    key_end = content.find(_KEY_ENDS)
    if start < 0 or key_end < 0:
        raise TlsProblem(f"{where} has no private key in PEM (a block BEGIN PRIVATE KEY)")
    password = store.key_password.encode() if store.key_password else None
    try:
        key = serialization.load_pem_private_key(_key_block(content), password)
    except TypeError:
        needed = "is missing: the private key is encrypted" if password is None else "is not needed: the key is plain"
        raise TlsProblem(f"{store.key_password_setting} {needed} ({where})") from None
    except ValueError as problem:
        if password is not None:
            raise TlsProblem(f"{where}: the private key does not open with {store.key_password_setting}") from None
        raise TlsProblem(f"{where}: the private key is damaged: {problem}") from None
    first, *others = _pem_certificates(where, content)
    return KeyPair(key, _ordered(first, tuple(others)))


def _key_block(content: bytes) -> bytes:
    end = content.find(_KEY_ENDS)
    start = content.rfind(_PEM_START, 0, end)
    close = content.find(_KEY_ENDS, end + len(_KEY_ENDS))
    return content[start : close + len(_KEY_ENDS)] + b"\n"


def _pem_certificates(where: str, content: bytes) -> tuple[x509.Certificate, ...]:
    if content.startswith((*_JAVA_MAGIC, b"\x30")):
        raise TlsProblem(f"{where} is not PEM; set its type to PKCS12, or convert it")
    try:
        return tuple(x509.load_pem_x509_certificates(content))
    except ValueError as problem:
        raise TlsProblem(f"{where} has no certificates in PEM that can be read: {problem}") from None


def _pkcs12(store: StoreSettings, where: str, content: bytes) -> PKCS12KeyAndCertificates:
    if content.startswith(_JAVA_MAGIC):
        raise TlsProblem(
            f"{where} is a Java key store, which is not read here. Convert it: keytool -importkeystore "
            f"-srckeystore {store.location} -destkeystore {store.location}.p12 -deststoretype PKCS12; then set "
            f"{store.prefix}.location={store.location}.p12 and {store.prefix}.type=PKCS12"
        )
    if content.lstrip().startswith(_PEM_START):
        raise TlsProblem(f"{where} is PEM; set {store.prefix}.type=PEM")
    if store.kind not in (PKCS12, JKS):  # Java opens PKCS#12 under either name
        raise TlsProblem(f"{store.prefix}.type must be PEM or PKCS12, got {store.kind}")
    password = store.password.encode() if store.password else None
    try:
        return pkcs12.load_pkcs12(content, password)
    except ValueError:
        words = f"{where} does not open with {store.prefix}.password, or is damaged"
        raise TlsProblem(
            words if password else f"{where}: {store.prefix}.password is missing, or it is damaged"
        ) from None


def _ordered(own: x509.Certificate, others: tuple[x509.Certificate, ...]) -> tuple[x509.Certificate, ...]:
    """A certificate with its issuers behind it, without the root, which the client has to have."""
    chain = [own]
    by_subject = {each.subject: each for each in others}
    while chain[-1].issuer != chain[-1].subject and len(chain) <= len(others):
        issuer = by_subject.get(chain[-1].issuer)
        if issuer is None or issuer.issuer == issuer.subject:
            break
        chain.append(issuer)
    return tuple(chain)
