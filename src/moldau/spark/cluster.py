"""From options to brokers: a direct client's view of the cluster, and its failures as Spark shows them to users."""

from typing import TypeVar

from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.retries import Backoff
from moldau.spark.connection import Connection

Result = TypeVar("Result")


class QueryFailed(Exception):
    """A query cannot go on: one sentence why, which Spark shows as the query's error."""


def open_cluster(connection: Connection, *, timeout_ms: int | None = None) -> Cluster:
    """A view of the cluster for one task or one driver; the caller closes it."""
    return Cluster(
        [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in connection.bootstrap],
        connection.security,
        client_id=connection.client_id,
        rack=connection.rack,
        timeout_s=(connection.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000,
        connect_timeout_s=connection.connect_timeout_ms / 1000,
        backoff=Backoff(connection.retry_ms / 1000, connection.retry_max_ms / 1000),
    )


def unwrap(answer: Result | Failure) -> Result:
    """The answer; QueryFailed if there is none."""
    if isinstance(answer, Failure):
        raise QueryFailed(str(answer))
    return answer
