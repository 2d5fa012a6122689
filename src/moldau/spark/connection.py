"""Connection: the `kafka.*` settings that reading and writing share (brokers, client id, security, timeouts)."""

from dataclasses import dataclass

from moldau.base.settings import SettingError, shortened
from moldau.client.direct.security import Security
from moldau.spark.kafka_settings import KafkaSettings
from moldau.spark.security import read_security

BOOTSTRAP = "kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class Connection:
    bootstrap: tuple[tuple[str, int], ...]
    client_id: str
    rack: str
    security: Security
    request_timeout_ms: int
    connect_timeout_ms: int
    retry_ms: int
    retry_max_ms: int


def read_connection(kafka: KafkaSettings, problems: list[SettingError]) -> Connection | None:
    """None if the addresses are invalid. Appends every problem."""
    security, wrong = read_security(kafka)
    problems += wrong
    bootstrap = _addresses(kafka.text("bootstrap.servers"))
    if isinstance(bootstrap, SettingError):
        problems.append(bootstrap)
        return None
    return Connection(
        bootstrap=bootstrap,
        client_id=kafka.text("client.id"),
        rack=kafka.text("client.rack"),
        security=security,
        request_timeout_ms=kafka.number("request.timeout.ms"),
        connect_timeout_ms=kafka.number("socket.connection.setup.timeout.ms"),
        retry_ms=kafka.number("retry.backoff.ms"),
        retry_max_ms=kafka.number("retry.backoff.max.ms"),
    )


def _addresses(text: str) -> tuple[tuple[str, int], ...] | SettingError:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        return SettingError(BOOTSTRAP, f"{BOOTSTRAP} must be set, such as localhost:9092")
    found = []
    for word in words:
        host, _, port = word.rpartition("://")[2].rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        good_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536
        if not host or not good_port or any(letter.isspace() or letter in "/[]" for letter in host):
            return SettingError(BOOTSTRAP, f"{BOOTSTRAP} must be host:port with commas, got '{shortened(word)}'")
        found.append((host, int(port)))
    return tuple(found)
