"""Fixtures for tests with a real Spark: one session for all of them, and records on the shared broker.

`broker`, `topic` (a fresh name) and `create_topic` come from tests/conftest.py. A process of pytest has one JVM, which
takes seconds to start, a gigabyte, and a while until it is quick: where there are several, all tests with the session
are in one of them (support/repository/distribution.py).
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.brokers.processes import AnyBroker, broker_environment, free_port
from support.clients.confluent import Record, read, write
from support.spark.pipelines import Pipelines

if TYPE_CHECKING:
    from support.spark.class_archive import ClassArchive

ROOT = Path(__file__).parents[2]
WITHOUT_PYSPARK = "needs PySpark: pip install '.[spark]'"
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": False,
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",  # for test_connect.py, and no JVM more
}

Send = Callable[..., None]
Stored = Callable[..., list[Record]]

LIMIT_S = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(LIMIT_S))


@pytest.fixture(scope="session")
def class_archive() -> "Iterator[ClassArchive]":
    """Spark's JVMs map an archive of their classes, if there is one, instead of loading each from a jar."""
    pytest.importorskip("pyspark", reason=WITHOUT_PYSPARK)
    from support.spark.class_archive import ClassArchive

    archive = ClassArchive()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {archive.use_options}".strip())
        yield archive


@pytest.fixture(scope="session")
def python_path(class_archive: "ClassArchive") -> str:
    """PYTHONPATH of Python workers: the Moldau that is tested, and the tests, whose functions they may run."""
    inherited = broker_environment()["PYTHONPATH"]
    return os.pathsep.join((inherited, str(ROOT / "tests"), str(ROOT)))


@pytest.fixture(scope="session")
def spark(python_path: str, class_archive: "ClassArchive") -> Iterator[Any]:
    """A session with two cores, for all tests that do not stop or kill it."""
    from moldau.spark import jvm, session

    os.environ["PYTHONPATH"] = python_path
    more = {
        "spark.driver.extraJavaOptions": class_archive.dump_options,
        "spark.connect.grpc.binding.port": free_port(),
    }
    started = session("tests", "local[2]", **SETTINGS, **more)
    yield started
    started.stop()
    class_archive.finish(jvm._running[0])


@pytest.fixture(autouse=True)
def _no_query_survives(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails leaves no stream running into the next one."""
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """Where a stream keeps how far it has come."""
    return str(tmp_path / "checkpoint")


@pytest.fixture
def produce(broker: AnyBroker) -> Send:
    """`produce(topic, [{"value": b"…"}, …], compression_type="zstd")` on the shared broker."""

    def to(topic: str, records: Any, **settings: object) -> None:
        write(broker.bootstrap, topic, records, **settings)

    return to


@pytest.fixture
def consume(broker: AnyBroker) -> Stored:
    """`consume(topic)`: what confluent-kafka reads of it, from beginning to end."""

    def of(*topics: str, isolation: str = "read_committed") -> list[Record]:
        return read(broker.bootstrap, *topics, isolation=isolation)

    return of


@pytest.fixture
def pipelines(tmp_path: Path, broker: AnyBroker, python_path: str) -> Pipelines:
    return Pipelines(tmp_path, broker.bootstrap, python_path)
