"""Open a direct client from the options of a query, and turn its failures into the query's error."""

from typing import TypeVar

from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.pool import ConnectionPool
from moldau.client.direct.retries import Backoff
from moldau.spark.connection import Connection
from moldau.spark.workers import is_worker

Result = TypeVar("Result")

_POOL = ConnectionPool()  # of a Python worker: Spark runs its tasks one after the other, each with a client of its own


class QueryFailed(Exception):
    """The query cannot continue. Spark shows the message, one sentence, as the query's error."""


def open_cluster(connection: Connection, *, timeout_ms: int | None = None) -> Cluster:
    """A client of the cluster for one task or driver; the caller closes it."""
    return Cluster(
        [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in connection.bootstrap],
        connection.security,
        client_id=connection.client_id,
        rack=connection.rack,
        timeout_s=(connection.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000,
        connect_timeout_s=connection.connect_timeout_ms / 1000,
        backoff=Backoff(connection.retry_ms / 1000, connection.retry_max_ms / 1000),
        pool=_POOL if is_worker() else None,
    )


def unwrap(result: Result | Failure) -> Result:
    """The result; raises QueryFailed for a Failure."""
    if isinstance(result, Failure):
        raise QueryFailed(str(result))
    return result
