"""`moldau doctor`: check Python, Java, packages, brokers and their disks, and advise.

It changes nothing. Without PySpark, missing parts of Spark are not an error.
"""

import os
import platform
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum

import typer

import moldau
from moldau import compiled
from moldau.client.admin.clients import Admin, explain
from moldau.client.admin.errors import AdminError, LoginFailed, ProtocolMismatch
from moldau.client.admin.reachability import diagnose
from moldau.client.admin.target import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Target
from moldau.client.admin.tls_probe import speaks_tls, tls_problem
from moldau.spark.java import NoJava, find_java
from moldau.spark.versions import INSTALL, installed, version_error
from moldau.tools.common.app import App
from moldau.tools.common.failure import FAILED
from moldau.tools.common.options import CommandContext, client_command
from moldau.tools.common.output import counted, print_json, print_table, print_text

app = App(name="doctor", help="Check this machine and the brokers.")

SPARK_PACKAGES = ("pyarrow", "pandas", "protobuf")  # beside PySpark itself
REACHED = "accepts connections"
REPAIR = "set its advertised.listeners to an address that clients reach"


GIGABYTE = 1e9
LOGIN_ADVICE = "Check sasl.mechanism, sasl.username and sasl.password; users of the broker: moldau user list"
FULL_ADVICE = "Delete topics or lower retention.bytes or retention.ms of large ones; see docs/durability.md"
OFFLINE_ADVICE = "Its partitions are offline on this broker. The broker's log says why; repair the disk and restart it"


class State(StrEnum):
    OK = "ok"
    NOTE = "note"  # information, nothing is broken
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `advice` is empty if all is well."""

    what: str
    state: State
    found: str
    advice: str = ""


@client_command(app, "doctor")
def doctor(context: CommandContext) -> None:
    """Check Python, Java, packages, the brokers' addresses and their disks."""
    findings = [*look_at_machine(), *look_at_spark(), *look_at_brokers(context.target)]
    if context.json:
        print_json([asdict(finding) for finding in findings])
    else:
        print_table(("CHECK", "STATE", "FOUND"), [(each.what, each.state, each.found) for each in findings])
        for finding in findings:
            if finding.advice:
                print_text(f"{finding.what}: {finding.advice}")
    if any(finding.state is State.WRONG for finding in findings):
        raise typer.Exit(FAILED)


def look_at_machine() -> Iterator[Finding]:
    yield Finding("moldau", State.OK, moldau.__version__)
    reason = compiled.modules.reason
    advice = f"The broker is slower as plain Python: {reason}." if reason else ""
    yield Finding("hot modules", State.NOTE if reason else State.OK, "not compiled" if reason else "compiled", advice)
    yield Finding("python", State.OK, f"{platform.python_version()} ({sys.executable})")
    if sys.platform == "win32":
        yield Finding("system", State.WRONG, "Windows", "Brokers and pipelines run in WSL2: wsl --install")
    else:
        yield Finding("system", State.OK, f"{platform.system()} {platform.machine()}")


def look_at_spark() -> Iterator[Finding]:
    version = installed("pyspark")
    if version is None:
        yield Finding("pyspark", State.NOTE, "not installed", f"Only Spark pipelines need it: {INSTALL}")
        return
    wrong = version_error(version)
    yield Finding("pyspark", State.WRONG if wrong else State.OK, version, wrong or "")
    for package in SPARK_PACKAGES:
        found = installed(package)
        advice = "" if found else f"Spark pipelines need it: {INSTALL}"
        yield Finding(package, State.OK if found else State.WRONG, found or "not installed", advice)
    java = find_java()
    if isinstance(java, NoJava):
        yield Finding("java", State.WRONG, "none that will do", java.reason)
    else:
        yield Finding("java", State.OK, f"{java.version} (from {java.found_in}: {java.home})")
    workers = os.environ.get("PYSPARK_PYTHON")
    if workers and workers != sys.executable:
        advice = "Python workers of sessions that moldau.spark did not make run that one; unset it unless you mean it"
        yield Finding("PYSPARK_PYTHON", State.NOTE, workers, advice)


def look_at_brokers(target: Target) -> Iterator[Finding]:
    reached = False
    for host, port in target.addresses():
        problem = reach(host, port)
        reached = reached or not problem
        advice = "Is a broker running there? Start one with: moldau up; or name another with --bootstrap"
        state = State.WRONG if problem else State.OK
        yield Finding("bootstrap", state, f"{host}:{port} {problem or REACHED}", advice if problem else "")
        if not problem and (finding := look_at_security(target, host, port)):
            yield finding
            reached = reached and finding.state is State.OK
    if reached:
        yield from look_at_advertised(target)
        yield from look_at_disks(target)


def look_at_security(target: Target, host: str, port: int) -> Finding | None:
    """Whether client and broker agree on TLS; None if both do without it."""
    encrypted = target.properties.get("security.protocol", "").lower().endswith("ssl")
    if encrypted:
        problem = tls_problem(target.properties, host, port)
        words, _, advice = problem.partition(": ")
        state = State.WRONG if problem else State.OK
        return Finding("tls", state, f"{host}:{port} {words or 'accepts TLS'}", advice)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    # A broker warns about a TLS handshake on a listener without TLS, so try one only where plain requests fail.
    if not isinstance(diagnose(Target(address, target.properties)), ProtocolMismatch) or not speaks_tls(host, port):
        return None
    advice = "Give -X security.protocol=ssl, or sasl_ssl, and -X ssl.ca.location with the authority's certificate"
    return Finding("tls", State.WRONG, f"{host}:{port} speaks TLS, and this client does not", advice)


def look_at_advertised(target: Target) -> Iterator[Finding]:
    """The addresses that brokers advertise: clients connect to these once they know them from the bootstrap address."""
    from confluent_kafka import KafkaException

    try:
        cluster = Admin(target).client.list_topics(timeout=REQUEST_TIMEOUT_S)
    except LoginFailed as failed:
        yield Finding("login", State.WRONG, str(failed), LOGIN_ADVICE)
        return
    except AdminError as refused:
        yield Finding("cluster", State.WRONG, str(refused), "Give its TLS and SASL settings with -X")
        return
    except KafkaException as error:
        advice = "Is it a Kafka broker, and are the TLS and SASL settings right? Give them with -X"
        yield Finding("cluster", State.WRONG, explain(error), advice)
        return
    yield Finding(
        "cluster", State.OK, f"{counted(len(cluster.brokers), 'broker')}, {counted(len(cluster.topics), 'topic')}"
    )
    for broker in sorted(cluster.brokers.values(), key=lambda each: int(each.id)):
        host, port = str(broker.host), int(broker.port)
        problem = reach(host, port)
        advice = (
            f"Broker {broker.id} tells clients to connect to {host}:{port}, which does not work from here: {REPAIR}"
        )
        state = State.WRONG if problem else State.OK
        found = f"{host}:{port} {problem or REACHED}"
        yield Finding(f"advertised by {broker.id}", state, found, advice if problem else "")


def look_at_disks(target: Target) -> Iterator[Finding]:
    """Log directories of all brokers: offline, full, or filling up."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.log_dirs import read_log_dirs

    try:
        with open_cluster(target) as cluster:
            found = read_log_dirs(cluster, ())
    except AdminError as problem:
        yield Finding("disks", State.NOTE, f"not checked: {problem}")
        return
    for each in found.directories:
        what = f"disk of {each.broker}"
        if each.problem:
            yield Finding(what, State.WRONG, each.problem, OFFLINE_ADVICE if each.error else FULL_ADVICE)
        elif each.usable_bytes < 0:
            yield Finding(what, State.OK, f"{each.path}, online; this broker does not tell its free space")
        else:
            free = f"{each.path}, {each.usable_bytes / GIGABYTE:.1f} of {each.total_bytes / GIGABYTE:.1f} GB free"
            state, advice = (State.NOTE, FULL_ADVICE) if each.is_low else (State.OK, "")
            yield Finding(what, state, free, advice)


def reach(host: str, port: int) -> str:
    """Why no connection can be made to this address, or nothing."""
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except socket.gaierror:
        return "is unknown: the name has no address"
    except TimeoutError:
        return f"does not answer within {CONNECT_TIMEOUT_S:.0f} s: a firewall?"
    except OSError as error:
        return f"cannot be reached: {(error.strerror or str(error)).lower()}"
    return ""
