"""Apache Kafka with its StandardAuthorizer: PLAINTEXT for User:ANONYMOUS, a super user, SASL_PLAINTEXT for alice."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jars import Jars
from benchmarks.peers import ApacheKafka, free_port, running

HOST = "127.0.0.1"
LOGIN = ("alice", "alice-secret")
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{LOGIN[0]}="{LOGIN[1]}";'
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@dataclass(frozen=True, slots=True)
class _Secured:
    kafka: ApacheKafka
    name: str = "Apache Kafka"
    version: str = ""

    def prepare(self, home: Path, port: int) -> None:
        self.kafka.prepare(home, port)

    def command(self, home: Path, port: int) -> list[str]:
        """With less memory than measured ones, and the collector that tests choose for all of Java."""
        return self.kafka.jars.command("kafka.Kafka", str(home / "server.properties"), options=("-Xmx512m",))


@contextmanager
def secured_kafka(jars: Jars, directory: Path) -> Iterator[tuple[str, str]]:
    """The address of the super user, and that of users who log in."""
    port = free_port()
    kafka = ApacheKafka(jars, settings=SETTINGS, listeners={"SASL_PLAINTEXT": port})
    with running(_Secured(kafka), directory, "secured") as peer:
        yield peer.bootstrap, f"{HOST}:{port}"
