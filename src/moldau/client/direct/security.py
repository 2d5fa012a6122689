"""How a connection is secured: TLS with PEM files or texts, and SASL credentials, as plain values that can be pickled.

Opens no sockets and speaks no mechanism (`sasl`). Java's key stores and JAAS strings are not understood here.
"""

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

PEM = "-----BEGIN"


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM everywhere: the path of a file, or its text."""

    ca: str | None = field(default=None, repr=False)  # None: the authorities that the machine trusts
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
class Sasl:
    """Credentials of one mechanism. A token may be a function that gets a fresh one."""

    mechanism: str  # PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
    username: str = ""
    password: str = field(default="", repr=False)
    token: str | Callable[[], str] = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Security:
    """None and None is PLAINTEXT."""

    tls: Tls | None = None
    sasl: Sasl | None = None


PLAINTEXT = Security()


@contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """A path for OpenSSL, which loads keys from files only; a text is written to a private one for the moment."""
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
