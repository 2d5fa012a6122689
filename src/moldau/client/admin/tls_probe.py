"""What is wrong with TLS between a client and a broker, in words: a handshake as the client would do it.

librdkafka says little about a handshake that failed. Each problem here is a sentence with its remedy.
"""

import socket
import ssl
import struct
from collections.abc import Mapping

from moldau.client.admin.errors import AdminError
from moldau.client.admin.security import read_security

PROBE_S = 3.0
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # an answer shows that the client's certificate was accepted too
NO_TLS = "does not speak TLS: use the port of a TLS listener, or leave out -X security.protocol=ssl"

# OpenSSL's reason → what is wrong. Alerts come from the broker.
_REASONS: Mapping[str, str] = {
    "WRONG_VERSION_NUMBER": NO_TLS,
    "RECORD_LAYER_FAILURE": NO_TLS,
    "UNSUPPORTED_PROTOCOL": "speaks no version of TLS that this client speaks: see its ssl.enabled.protocols",
    "TLSV1_ALERT_PROTOCOL_VERSION": "speaks no version of TLS that this client speaks: see its ssl.enabled.protocols",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "has no cipher suite in common with this client, or wants a certificate: see its "
    "ssl.cipher.suites, or give one with -X ssl.certificate.location and -X ssl.key.location",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "wants a certificate of the client (ssl.client.auth=required): give it with "
    "-X ssl.certificate.location and -X ssl.key.location",
    "TLSV1_ALERT_UNKNOWN_CA": "does not trust the certificate of this client: its ssl.truststore.location needs the "
    "authority that signed it",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "says that the certificate of this client has expired: renew it",
    "SSLV3_ALERT_BAD_CERTIFICATE": "refuses the certificate of this client",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "refuses the certificate of this client",
}
# OpenSSL's codes of certificates that are not accepted.
_EXPIRED, _NOT_YET_VALID, _NO_ISSUER, _SELF_SIGNED, _SELF_SIGNED_CHAIN, _NO_LEAF_ISSUER = 10, 9, 20, 18, 19, 21
_HOST_MISMATCH, _IP_MISMATCH = 62, 64


def tls_problem(properties: Mapping[str, str], host: str, port: int) -> str:
    """Why the client cannot use TLS with this broker, as the end of "host:port …"; "" if it can, or uses none."""
    try:
        security = read_security(properties)
        if security.tls is None:
            return ""
        context = security.tls.context()
    except AdminError:
        return ""  # settings that only librdkafka knows
    except ssl.SSLError as problem:
        return f"was not asked: the client's own certificates cannot be loaded: {problem.reason or problem}"
    except OSError as problem:
        return f"was not asked: a file of the client cannot be read: {problem.strerror}"
    try:
        with (
            socket.create_connection((host, port), timeout=PROBE_S) as link,
            context.wrap_socket(link, server_hostname=host) as encrypted,
        ):
            if security.sasl is None:  # TLS 1.3 tells only now whether the client's certificate was accepted
                encrypted.sendall(API_VERSIONS)
                encrypted.recv(1)
            return ""
    except ssl.SSLCertVerificationError as problem:
        return _certificate_problem(problem, host)
    except ssl.SSLEOFError:
        return f"ends the TLS handshake; maybe it {NO_TLS}"
    except ssl.SSLError as problem:
        return _REASONS.get(problem.reason or "", f"fails the TLS handshake: {problem.reason or problem}")
    except TimeoutError:
        return f"does not answer a TLS handshake; maybe it {NO_TLS}"
    except OSError as problem:
        return f"ends the connection: {(problem.strerror or str(problem)).lower()}; maybe it {NO_TLS}"


def speaks_tls(host: str, port: int) -> bool:
    """Whether a port answers a TLS handshake. Verifies nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=PROBE_S) as link, context.wrap_socket(link):
            return True
    except ssl.SSLEOFError:
        return False
    except ssl.SSLError as problem:
        return _REASONS.get(problem.reason or "") != NO_TLS
    except OSError:
        return False


def _certificate_problem(problem: ssl.SSLCertVerificationError, host: str) -> str:
    match problem.verify_code:
        case code if code == _EXPIRED:
            return "shows a certificate that has expired: renew it on the broker"
        case code if code == _NOT_YET_VALID:
            return "shows a certificate that is not valid yet: compare the clocks of both machines"
        case code if code in (_NO_ISSUER, _SELF_SIGNED, _SELF_SIGNED_CHAIN, _NO_LEAF_ISSUER):
            return (
                "shows a certificate of an authority that this client does not trust: give the authority's "
                "certificate with -X ssl.ca.location"
            )
        case code if code in (_HOST_MISMATCH, _IP_MISMATCH):
            return (
                f"shows a certificate that does not name {host}: connect by a name that it has, or add this one to "
                "the certificate's subject alternative names"
            )
    return f"shows a certificate that is not accepted: {problem.verify_message}"
