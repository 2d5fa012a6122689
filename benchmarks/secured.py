"""Brokers with security: the same certificates, user, ACLs and quotas for both kinds. Generates no load.

There are two of each kind. The open one has TLS on a second listener and nothing else. The secured one has an
authorizer, ACLs, quotas, and listeners for users that log in. On both, PLAINTEXT is for the benchmark's own
administration, as User:ANONYMOUS, a super user where there are ACLs.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import frames, logins
from benchmarks.drive import ProduceLoad
from benchmarks.jars import Jars
from benchmarks.peers import READY_LIMIT_S, ApacheKafka, FromSource, Kind, Moldau, Peer, free_port, running
from moldau.client.admin.acls import create_acls, find_acls
from moldau.client.admin.cluster import Cluster, open_cluster
from moldau.client.admin.quotas import alter_quotas, list_quotas
from moldau.client.admin.target import Target
from moldau.client.admin.users import set_password
from moldau.ensemble.ports import HOST
from moldau.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from moldau.security.sasl_client import Sasl
from moldau.tools.certs.authority import Authority, write_private
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

MECHANISM, ITERATIONS = "SCRAM-SHA-256", 4096
SASL = Sasl(MECHANISM, "bench", "bench-secret")
PRINCIPAL = f"User:{SASL.username}"
ACLS = 1_000
ACLS_PER_REQUEST = 100
QUOTAS = {  # far beyond what any client reaches
    "producer_byte_rate": 1e12,
    "consumer_byte_rate": 1e12,
    "request_percentage": 1e6,
    "controller_mutation_rate": 1e6,
}
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
LIMIT_S = 60.0
TOPIC_AUTHORIZATION_FAILED, SASL_AUTHENTICATION_FAILED = 29, 58
FOREIGN_TOPIC = "orders-1"  # which the user may not see

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
OPEN, SECURED = (SSL,), (SASL_SSL, SASL_PLAINTEXT)  # listeners beside PLAINTEXT
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": MECHANISM,
    **{
        f"listener.name.{protocol.lower()}.{MECHANISM.lower()}.sasl.jaas.config": f"{LOGIN_MODULE};"
        for protocol in SECURED
    },
}

Which = Moldau | ApacheKafka


@dataclass(frozen=True, slots=True)
class Files:
    """Certificates of brokers, and the properties of clients."""

    directory: Path

    @property
    def authority(self) -> Path:
        return self.directory / "ca.pem"

    def broker_settings(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.directory / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }

    def librdkafka(self, protocol: str) -> dict[str, str]:
        settings = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            settings["ssl.ca.location"] = str(self.authority)
        if protocol.startswith("SASL"):
            settings |= {
                "sasl.mechanism": MECHANISM, "sasl.username": SASL.username, "sasl.password": SASL.password
            }  # fmt: skip
        return settings

    def java(self, protocol: str) -> Path:
        return self.directory / f"{protocol}.properties"


def make_files(directory: Path) -> Files:
    """An authority and a certificate for both brokers, as `moldau certs create` makes them, and Java's properties."""
    directory.mkdir()
    files, authority = Files(directory), Authority()
    write_private(files.authority, authority.pem)
    write_private(directory / "broker.pem", authority.broker([HOST]).keystore_pem())
    for protocol in (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL):
        settings = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(files.authority)}
        if protocol.startswith("SASL"):
            login = f'{LOGIN_MODULE} username="{SASL.username}" password="{SASL.password}";'
            settings |= {"sasl.mechanism": MECHANISM, "sasl.jaas.config": login}
        write_private(files.java(protocol), "".join(f"{name}={value}\n" for name, value in settings.items()))
    return files


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener of a broker, and what clients need for it."""

    peer: Peer
    protocol: str
    port: int
    files: Files

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def librdkafka(self) -> Mapping[str, str]:
        return self.files.librdkafka(self.protocol)

    def load(self, jars: Jars | None, load: ProduceLoad) -> ProduceLoad:
        """The same load with the client's security: a file for Java, settings for librdkafka."""
        if jars is None:
            return replace(load, settings={**load.settings, **self.librdkafka})
        return replace(load, config=self.files.java(self.protocol))

    def connect(self) -> frames.Connection:
        """A raw connection, after the TLS handshake and before any login."""
        return frames.Connection(
            self.address, tls=logins.light_context() if self.tls else None, read_size=logins.READ_SIZE
        )


@dataclass(frozen=True, slots=True)
class PeerEndpoints:
    """A broker with its endpoints by security protocol."""

    peer: Peer
    endpoints: Mapping[str, Endpoint]


@contextlib.contextmanager
def running_open(
    kind: Kind,
    files: Files,
    workdir: Path,
    label: str,
    wrap: Callable[[Kind], Kind] = lambda kind: kind,
    ready_limit_s: float = READY_LIMIT_S,
) -> Iterator[PeerEndpoints]:
    """`wrap` has the last word on how the broker is started."""
    with _running(kind, OPEN, files.broker_settings(), files, workdir, label, wrap, ready_limit_s) as broker:
        yield broker


@contextlib.contextmanager
def running_secured(kind: Which, files: Files, workdir: Path, label: str) -> Iterator[PeerEndpoints]:
    """With user, ACLs and quotas in force: the user can log in, and is refused what no ACL allows."""
    with _running(kind, SECURED, {**files.broker_settings(), **AUTHORIZED}, files, workdir, label) as broker:
        with open_cluster(Target(broker.peer.bootstrap)) as cluster:
            set_password(cluster, SASL.username, SASL.password, [MECHANISM], ITERATIONS)
            _secure(cluster)
        _await(lambda: all(_lets_in(broker.endpoints[protocol]) for protocol in SECURED), "the user to log in")
        yield broker


@contextlib.contextmanager
def _running(
    kind: Kind,
    protocols: tuple[str, ...],
    settings: Mapping[str, str],
    files: Files,
    workdir: Path,
    label: str,
    wrap: Callable[[Kind], Kind] = lambda kind: kind,
    ready_limit_s: float = READY_LIMIT_S,
) -> Iterator[PeerEndpoints]:
    ports = {protocol: free_port() for protocol in protocols}
    started = wrap(_listening(kind, settings, ports))
    with running(started, workdir, label, ready_limit_s=ready_limit_s) as peer:
        everyone = {PLAINTEXT: peer.port, **ports}
        broker = PeerEndpoints(peer, {name: Endpoint(peer, name, port, files) for name, port in everyone.items()})
        _await(lambda: all(_accepts(endpoint) for endpoint in broker.endpoints.values()), "all listeners")
        yield broker


def _listening(kind: Kind, settings: Mapping[str, str], listeners: Mapping[str, int]) -> Kind:
    """This kind with such settings and listeners."""
    if isinstance(kind, FromSource):
        return replace(kind, kind=_listening(kind.kind, settings, listeners))
    if isinstance(kind, Moldau | ApacheKafka):
        return replace(kind, settings=settings, listeners=listeners)
    raise TypeError(f"{kind.name} takes no listeners")


def _secure(cluster: Cluster) -> None:
    bindings = acls()
    for first in range(0, len(bindings), ACLS_PER_REQUEST):
        create_acls(cluster, bindings[first : first + ACLS_PER_REQUEST])
    alter_quotas(cluster, {"user": SASL.username}, QUOTAS)
    _await(lambda: len(find_acls(cluster, AclFilter())) == len(bindings), "all ACLs")
    _await(lambda: bool(list_quotas(cluster, {"user": SASL.username})), "quotas")


def acls() -> list[AclBinding]:
    """A few that let the user produce and consume, and others of all sorts up to ACLS, with one denial in ten."""
    topics = ResourcePattern(ResourceType.TOPIC, "bench-", PatternType.PREFIXED)
    needed = [
        _allowed(topics, PRINCIPAL, Operation.READ),
        _allowed(topics, PRINCIPAL, Operation.WRITE),
        _allowed(ResourcePattern(ResourceType.GROUP, "bench"), PRINCIPAL, Operation.READ),
        # For the same user and topics, and yet not for this host: it has to be looked at.
        AclBinding(topics, AclEntry(PRINCIPAL, "10.0.0.7", Operation.ALL, Permission.DENY)),
    ]
    return [*needed, *(_other(number) for number in range(ACLS - len(needed)))]


def _other(number: int) -> AclBinding:
    principal = f"User:user-{number % 100}"
    patterns = (
        ResourcePattern(ResourceType.TOPIC, f"orders-{number}"),
        ResourcePattern(ResourceType.TOPIC, f"team-{number}-", PatternType.PREFIXED),
        ResourcePattern(ResourceType.GROUP, f"readers-{number}"),
        ResourcePattern(ResourceType.TOPIC, f"bench-other-{number}", PatternType.PREFIXED),
    )
    pattern = patterns[number % len(patterns)]
    if number % 10 == 0:
        return AclBinding(pattern, AclEntry(principal, "*", Operation.READ, Permission.DENY))
    return _allowed(pattern, principal, Operation.READ)


def _allowed(pattern: ResourcePattern, principal: str, operation: Operation) -> AclBinding:
    return AclBinding(pattern, AclEntry(principal, "*", operation, Permission.ALLOW))


def _accepts(endpoint: Endpoint) -> bool:
    try:
        with endpoint.connect():
            return True
    except ConnectionError:
        return False


def _lets_in(endpoint: Endpoint) -> bool:
    try:
        with endpoint.connect() as connection:
            logins.log_in(connection, SASL)
            _check_authorizer(connection)
    except frames.RefusedError as refused:
        if refused.error != SASL_AUTHENTICATION_FAILED:
            raise
        return False
    return True


def _check_authorizer(connection: frames.Connection) -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name=FOREIGN_TOPIC),), allow_auto_topic_creation=False)
    error = frames.call(connection, request, MetadataResponse, frames.METADATA_VERSION).topics[0].error_code
    if error != TOPIC_AUTHORIZATION_FAILED:
        raise frames.RefusedError(f"Metadata of {FOREIGN_TOPIC} has error {error}: ACLs are not in force", error)


def _await(done: Callable[[], bool], what: str) -> None:
    """Changes of the metadata reach a broker a moment after they were accepted."""
    deadline = time.monotonic() + LIMIT_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {LIMIT_S:.0f} s for {what}")
        time.sleep(0.05)
