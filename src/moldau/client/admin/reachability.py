"""Reachability of a cluster: why no broker answers, found out in seconds where librdkafka tries until its time-out."""

import socket

from moldau.client.admin.errors import AdminError, AdvertisedUnreachable, ProtocolMismatch, Unreachable
from moldau.client.admin.security import read_security
from moldau.client.admin.target import CLIENT_ID, CONNECT_TIMEOUT_S, Target, reason_of

PROBE_S = 2.0  # for one answer


def check_reachable(target: Target) -> None:
    """Raise Unreachable, with the reason, unless a bootstrap address speaks the security protocol of the client."""
    host, port = _first_reachable(target, CONNECT_TIMEOUT_S)
    problem = _handshake_problem(target, host, port)
    if problem is not None:
        raise problem


def diagnose(target: Target) -> Unreachable | None:
    """Why brokers do not answer: bootstrap, security protocol, advertised address. None if nothing is wrong."""
    try:
        host, port = _first_reachable(target, PROBE_S)
    except Unreachable as problem:
        return problem
    return _handshake_problem(target, host, port) or _metadata_problem(target, host, port)


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


def _handshake_problem(target: Target, host: str, port: int) -> ProtocolMismatch | None:
    """A listener that does not speak TLS closes the connection when it is greeted with TLS, or stays silent."""
    protocol = target.properties.get("security.protocol", "plaintext").lower()
    if not protocol.endswith("ssl"):
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only whether it speaks TLS; certificates are the client's business
    try:
        with socket.create_connection((host, port), timeout=PROBE_S) as link, context.wrap_socket(link):
            return None
    except ssl.SSLEOFError:
        silent = False
    except ssl.SSLError as error:
        silent = "WRONG_VERSION" in str(error) or "RECORD_LAYER" in str(error)
        if not silent:
            return None  # it speaks TLS, and wants something of it that a probe does not have, such as a certificate
    except OSError:
        silent = True
    reason = "does not answer a TLS handshake" if silent else "ends the TLS handshake"
    return ProtocolMismatch(f"{host}:{port}", f"{reason}: it does not seem to be a TLS listener", protocol)


def _metadata_problem(target: Target, host: str, port: int) -> Unreachable | None:
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
    except (AdminError, AuthenticationFailed, UnsupportedByBroker):
        return None  # a failure of another kind, which the client itself reports better
    except ConnectionLost as lost:
        protocol = target.properties.get("security.protocol", "plaintext").lower()
        reason = f"closes them ({lost}): it may expect TLS or SASL, or not be a broker"
        return ProtocolMismatch(address, reason, protocol)
    except OSError as error:
        return Unreachable(address, reason_of(error))
    for row in answer.brokers:
        problem = why_unreachable(row.host, row.port, PROBE_S)
        if problem:
            return AdvertisedUnreachable(f"{row.host}:{row.port}", problem, address, row.node_id)
    return None
