"""Authority: a certificate authority for tests and laptops, which issues certificates for brokers and clients.

Its key lies in a file beside the others, without a password: nothing of this is for production.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

YEAR = datetime.timedelta(days=365)
SKEW = datetime.timedelta(minutes=5)  # of other machines' clocks
RSA_BITS = 2048
PRIVATE = 0o600
LONGEST_NAME = 64  # of a subject's common name

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class Certificate:
    """A private key, its certificate, and the certificate of the authority that signed it."""

    key: Key
    certificate: x509.Certificate
    authority: x509.Certificate

    def key_pem(self, password: str = "") -> str:
        hidden = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        pem = self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
        return pem.decode()

    @property
    def chain_pem(self) -> str:
        return _pem(self.certificate)

    @property
    def authority_pem(self) -> str:
        return _pem(self.authority)

    def keystore_pem(self, password: str = "") -> str:
        """Key and certificate as ssl.keystore.location takes them with ssl.keystore.type=PEM."""
        return self.key_pem(password) + self.chain_pem

    def pkcs12(self, password: str) -> bytes:
        """Key and certificates as ssl.keystore.location takes them with ssl.keystore.type=PKCS12."""
        hidden = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"moldau", self.key, self.certificate, [self.authority], hidden)


class Authority:
    """`with_rsa` makes keys that every old client knows; the default is faster."""

    def __init__(self, name: str = "Moldau test authority", *, with_rsa: bool = False) -> None:
        self._with_rsa = with_rsa
        self._key = self._new_key()
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        builder = _builder(self._name, self._name, self._key, now - SKEW, now + 10 * YEAR)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self.certificate = builder.add_extension(identifier, critical=False).sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return _pem(self.certificate)

    @property
    def key_pem(self) -> str:
        return Certificate(self._key, self.certificate, self.certificate).key_pem()

    def broker(self, hosts: Sequence[str], *, subject: x509.Name | None = None, days: int = 365) -> Certificate:
        """A certificate for the host names and addresses, which may also be a client: brokers connect to each other."""
        named = _common_name(hosts[0][:LONGEST_NAME]) if subject is None else subject
        return self._issue(named, days, x509.SubjectAlternativeName([_alternative(host) for host in hosts]))

    def client(self, name: str = "", *, subject: x509.Name | None = None, days: int = 365) -> Certificate:
        return self._issue(_common_name(name) if subject is None else subject, days, None)

    def _issue(self, subject: x509.Name, days: int, names: x509.SubjectAlternativeName | None) -> Certificate:
        key = self._new_key()
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
        start = min(datetime.datetime.now(datetime.UTC), end - 2 * SKEW) - SKEW
        builder = _builder(subject, self._name, key, start, end)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if names is not None:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        signed = builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        return Certificate(key, signed, self.certificate)

    def _new_key(self) -> Key:
        if self._with_rsa:
            return rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
        return ec.generate_private_key(ec.SECP256R1())


def write_private(path: Path, content: str | bytes) -> Path:
    """Write a file that its owner alone can read, in place of one that is there."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    with os.fdopen(handle, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return path


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, start: datetime.datetime, end: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
