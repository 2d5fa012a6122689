"""Reachability of a cluster: why no broker answers, found out in seconds where librdkafka tries until its time-out."""

import os
import socket

from moldau.client.admin.errors import (
    AdminError,
    AdvertisedUnreachable,
    LoginFailed,
    NotTls,
    ProtocolMismatch,
    TlsFailed,
    Unreachable,
)
from moldau.client.admin.security import read_security
from moldau.client.admin.target import CLIENT_ID, CONNECT_TIMEOUT_S, Target, reason_of

PROBE_S = 2.0  # for one answer


def check_reachable(target: Target) -> None:
    """Raise Unreachable or LoginFailed, with the reason, unless a bootstrap address lets the client in.

    A login is tried with SASL only, since it loads all messages of the protocol.
    """
    host, port = _first_reachable(target, CONNECT_TIMEOUT_S)
    problem: AdminError | None = _handshake_problem(target, host, port)
    if problem is None and _protocol(target).startswith("sasl"):
        problem = _metadata_problem(target, host, port, advertised=False)
    if problem is not None:
        raise problem


def diagnose(target: Target) -> AdminError | None:
    """Why brokers do not answer: bootstrap, TLS, login, advertised address. None if nothing is wrong."""
    try:
        host, port = _first_reachable(target, PROBE_S)
    except Unreachable as problem:
        return problem
    return _handshake_problem(target, host, port) or _metadata_problem(target, host, port)


def _protocol(target: Target) -> str:
    return target.properties.get("security.protocol", "plaintext").lower()


def why_unreachable(host: str, port: int, timeout_s: float = CONNECT_TIMEOUT_S) -> str:
    """Why no connection can be made to this address; nothing if one can."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except TimeoutError:
        return f"no answer within {timeout_s:.0f} s; is there a firewall?"
    except OSError as error:
        return reason_of(error)
    return ""


def _first_reachable(target: Target, timeout_s: float) -> tuple[str, int]:
    problem = ""
    for host, port in target.addresses():
        problem = why_unreachable(host, port, timeout_s)
        if not problem:
            return host, port
    raise Unreachable(target.bootstrap, problem)


def _handshake_problem(target: Target, host: str, port: int) -> Unreachable | None:
    """Why TLS does not work, if the client uses it."""
    protocol = _protocol(target)
    if not protocol.endswith("ssl"):
        return None
    from moldau.client.admin.tls_probe import speaks_tls, tls_problem

    address = f"{host}:{port}"
    if not speaks_tls(host, port):
        reason = "does not answer a TLS handshake, or ends it: it does not seem to be a TLS listener"
        return NotTls(address, reason, protocol)
    authorities = target.properties.get("ssl.ca.location", "")
    if authorities == "probe" or os.path.isdir(authorities):  # only librdkafka knows how
        return None
    problem = tls_problem(target.properties, host, port)
    return TlsFailed(address, problem) if problem else None


def _metadata_problem(target: Target, host: str, port: int, *, advertised: bool = True) -> AdminError | None:
    """Why no login, no answer, or no connection to an advertised address can be had."""
    # Here, because these load all messages of the protocol.
    from moldau.client.direct.connection import Connection, ConnectionLost, UnsupportedByBroker
    from moldau.security.sasl_client import AuthenticationFailed
    from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

    address = f"{host}:{port}"
    try:
        security = read_security(target.properties)
        connection = Connection(host, port, security, client_id=CLIENT_ID, timeout_s=PROBE_S)
        try:
            answer = connection.ask(MetadataRequest(topics=(), allow_auto_topic_creation=False), MetadataResponse)
        finally:
            connection.close()
    except AuthenticationFailed as failed:
        return LoginFailed(str(failed))
    except (AdminError, UnsupportedByBroker):
        return None  # a failure of another kind, which the client itself reports better
    except ConnectionLost as lost:
        wanted = _wanted(_protocol(target), host, port)
        reason = f"a request failed ({lost}): it may expect {wanted.upper()}, or not be a broker"
        return ProtocolMismatch(address, reason, _protocol(target), wanted)
    except OSError as error:
        return Unreachable(address, reason_of(error))
    for row in answer.brokers if advertised else ():
        problem = why_unreachable(row.host, row.port, PROBE_S)
        if problem:
            return AdvertisedUnreachable(f"{row.host}:{row.port}", problem, address, row.node_id)
    return None


def _wanted(protocol: str, host: str, port: int) -> str:
    """The security protocol that a broker may expect which closes a connection of this one."""
    from moldau.client.admin.tls_probe import speaks_tls

    if protocol == "plaintext":
        return "ssl" if speaks_tls(host, port) else "sasl_plaintext"
    return "sasl_ssl"
