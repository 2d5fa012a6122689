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
PROTOCOLS = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"


@dataclass(frozen=True, slots=True)
class _Secured:
    kafka: ApacheKafka
    sasl_port: int
    name: str = "Apache Kafka"
    version: str = ""

    def prepare(self, home: Path, port: int) -> None:
        self.kafka.prepare(home, port)
        properties = home / "server.properties"
        settings = dict(line.split("=", 1) for line in properties.read_text().splitlines())
        users = f"SASL_PLAINTEXT://{HOST}:{self.sasl_port}"
        settings["listeners"] += f",{users}"
        settings["advertised.listeners"] += f",{users}"
        settings["listener.security.protocol.map"] = PROTOCOLS
        settings["sasl.enabled.mechanisms"] = "PLAIN"
        settings["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = JAAS
        settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        settings["super.users"] = "User:ANONYMOUS"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def command(self, home: Path, port: int) -> list[str]:
        """With less memory than measured ones, and the collector that tests choose for all of Java."""
        return self.kafka.jars.command("kafka.Kafka", str(home / "server.properties"), options=("-Xmx512m",))


@contextmanager
def secured_kafka(jars: Jars, directory: Path) -> Iterator[tuple[str, str]]:
    """The address of the super user, and that of users who log in."""
    kind = _Secured(ApacheKafka(jars), free_port())
    with running(kind, directory, "secured") as peer:
        yield peer.bootstrap, f"{HOST}:{kind.sasl_port}"
