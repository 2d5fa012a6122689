"""Running a program: of a file as a pipeline, or in the process that has built it."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from moldau.client.settings import DEFAULT_BOOTSTRAP
from moldau.spark.defaults import BOOTSTRAP_VARIABLE
from moldau.spark.pipelines.directory import locked, pipeline_directory
from moldau.spark.sessions import session
from moldau.streams.compiler.running import start_queries
from moldau.streams.topology.nodes import Topology


class Program(Protocol):
    """What is run of a Streams."""

    name: str
    bootstrap: str

    @property
    def topology(self) -> Topology: ...


def starter(app: Program, data_directory: str, bootstrap: str, first: str) -> Callable[[Any], Any]:
    """A function of a session that starts the queries of a program, as `main` of a pipeline does."""
    topology = app.topology
    directory = pipeline_directory(data_directory, app.name)
    where = bootstrap_of(app, bootstrap)
    return lambda spark: start_queries(topology, spark, where, directory, first)


def bootstrap_of(app: Program, given: str = "") -> str:
    return given or app.bootstrap or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP


def run_here(app: Program, master: str, data_directory: str, first: str, settings: Mapping[str, object]) -> None:
    """Run a program in this process, until a query fails or it is interrupted."""
    start = starter(app, data_directory, "", first)
    with locked(pipeline_directory(data_directory, app.name)):
        spark = session(app.name, master, **settings)
        queries = start(spark)
        try:
            spark.streams.awaitAnyTermination()
        except KeyboardInterrupt:
            return
        finally:
            for query in queries:
                query.stop()
