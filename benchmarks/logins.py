"""SCRAM logins: connections that log in and close, one after the other in each of some processes. Not a client.

A client spends most of a login on PBKDF2. Here each process hashes the password once for the user's salt, so that the
rate is the broker's. Everything else is real: the TLS handshake, the nonces, the proofs of both sides.
"""

import functools
import multiprocessing
import secrets
import ssl
import time
from dataclasses import dataclass
from typing import Any

from benchmarks import frames
from benchmarks.peers import cpu_seconds
from moldau.security.sasl_client import Sasl, scram
from moldau.security.scram import SCRAM, salted_password
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

READ_SIZE = 4096  # of a connection that reads small responses only
LEAD_S = 0.2  # until all processes have started

_remembered = functools.cache(salted_password)


@functools.cache
def light_context() -> ssl.SSLContext:
    """TLS without a check of the chain of the broker's certificate, which only the client would pay for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def log_in(connection: frames.Connection, sasl: Sasl) -> None:
    """Log in with SCRAM; RefusedError if the broker does not let the user in."""
    handshake = frames.call(connection, SaslHandshakeRequest(mechanism=sasl.mechanism), SaslHandshakeResponse, 1)
    if handshake.error_code:
        raise frames.RefusedError(f"SaslHandshake was refused: {handshake}", handshake.error_code)
    talk = scram(sasl, SCRAM[sasl.mechanism].digest, secrets.token_urlsafe(18), _remembered)
    said = next(talk)
    while True:
        answer = frames.call(connection, SaslAuthenticateRequest(auth_bytes=said), SaslAuthenticateResponse, 2)
        if answer.error_code:
            raise frames.RefusedError(f"SaslAuthenticate was refused: {answer.error_message}", answer.error_code)
        try:
            said = talk.send(bytes(answer.auth_bytes))
        except StopIteration:
            return


@dataclass(frozen=True, slots=True)
class Repeated:
    """The logins of one process that ended in the measured time, and the CPU that it used meanwhile."""

    logins: int
    cpu_s: float


def log_in_repeatedly(job: dict[str, Any]) -> dict[str, float]:
    """Logins per second of all processes, and the CPU of broker and clients for one."""
    start = time.monotonic() + LEAD_S + job["warm_up_s"]
    end = start + job["seconds"]
    with multiprocessing.get_context("fork").Pool(job["processes"]) as pool:
        repeating = pool.map_async(functools.partial(_repeat, job, start), [end] * job["processes"], chunksize=1)
        time.sleep(max(0.0, start - time.monotonic()))
        before, began = cpu_seconds(job["pid"]), time.monotonic()
        time.sleep(max(0.0, end - time.monotonic()))
        used, seconds = cpu_seconds(job["pid"]) - before, time.monotonic() - began
        repeated = repeating.get()
    logins = sum(each.logins for each in repeated)
    client_cpu_s = sum(each.cpu_s for each in repeated)
    return {
        "logins": logins,
        "per_s": logins / (end - start),
        "cpu_ms": used / seconds * (end - start) / logins * 1000,
        "client_cpu_ms": client_cpu_s / logins * 1000,
        "broker_busy": used / seconds,
        "client_busy": client_cpu_s / (end - start),
    }


def _repeat(job: dict[str, Any], start: float, end: float) -> Repeated:
    sasl = Sasl(job["mechanism"], job["username"], job["password"])
    address = job["host"], job["port"]
    tls = light_context() if job["tls"] else None
    logins, cpu_s = 0, 0.0
    while time.monotonic() < end:
        before = time.process_time()
        with frames.Connection(address, tls=tls, read_size=READ_SIZE) as connection:
            log_in(connection, sasl)
        if start <= time.monotonic() < end:
            logins, cpu_s = logins + 1, cpu_s + time.process_time() - before
    return Repeated(logins, cpu_s)
