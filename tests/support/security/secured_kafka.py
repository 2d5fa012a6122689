"""Apache Kafka with its StandardAuthorizer: SASL_PLAINTEXT for users, of which admin is a super user."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jars import Jars
from benchmarks.peers import ApacheKafka, free_port, running
from support.clients.sasl import ACLS_AND_TOKENS, LISTENER, plain_jaas

HOST = "127.0.0.1"
SETTINGS = {
    **ACLS_AND_TOKENS,
    "super.users": "User:admin;User:ANONYMOUS",  # the latter is Kafka itself
    "sasl.enabled.mechanisms": "PLAIN",
    f"{LISTENER}.plain.sasl.jaas.config": plain_jaas(),
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
def secured_kafka(jars: Jars, directory: Path) -> Iterator[str]:
    """The address of its users."""
    port = free_port()
    kafka = ApacheKafka(jars, settings=SETTINGS, listeners={"SASL_PLAINTEXT": port})
    with running(_Secured(kafka), directory, "secured"):
        yield f"{HOST}:{port}"
