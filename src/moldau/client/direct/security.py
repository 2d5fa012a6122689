"""Security settings of a connection as picklable values: TLS with PEM files or texts, and SASL credentials.

Opens no sockets, implements no mechanism (`security/sasl_client` does), reads no Java key stores and no JAAS strings.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from moldau.security.sasl_client import Sasl

PEM = "-----BEGIN"


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files by path, or their text."""

    ca: str | None = field(default=None, repr=False)  # None: the system's certificate authorities
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)  # None: in the certificate's file
    key_password: str | None = field(default=None, repr=False)
    check_host_name: bool = True

    def context(self) -> ssl.SSLContext:
        ca = {"cadata": self.ca} if self.ca and PEM in self.ca else {"cafile": self.ca}
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, **ca)
        context.check_hostname = self.check_host_name
        if self.certificate:
            with ExitStack() as files:
                certificate = files.enter_context(_as_file(self.certificate))
                key = files.enter_context(_as_file(self.key)) if self.key else None
                context.load_cert_chain(certificate, key, self.key_password)
        return context


@dataclass(frozen=True, slots=True)
class Security:
    """PLAINTEXT without TLS and SASL."""

    tls: Tls | None = None
    sasl: Sasl | None = None


PLAINTEXT = Security()


@contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """A path for OpenSSL, which loads keys from files only; a text goes to a temporary private file."""
    if PEM not in pem:
        yield pem
        return
    handle, path = tempfile.mkstemp(suffix=".pem")  # readable by its owner alone
    try:
        with os.fdopen(handle, "w") as file:
            file.write(pem)
        yield path
    finally:
        os.unlink(path)
