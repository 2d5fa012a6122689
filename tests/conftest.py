"""Fixtures for tests that need a broker process, and the end of the broker's log in the report of a failed test.

By default the broker is Moldau. To run the same tests on another broker:
- MOLDAU_TEST_BROKER=apache starts Apache Kafka processes instead (needs java; see support/kafka/jvm.py);
- MOLDAU_TEST_BOOTSTRAP=host:port uses a running broker; tests that need their own are skipped, and those of groups
  and transactions if that broker has longer timeouts than SHORT_WAITS.

Brokers run with compiled modules, as users run them; MOLDAU_COMPILE=0 runs them as Python. In the process of the tests
modules are Python, because tests replace parts of them. MOLDAU_TEST_SWAPPED=1 is the other way round: compiled here,
Python in brokers.
"""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from moldau import compiled

if os.environ.get("MOLDAU_TEST_SWAPPED") != "1" and compiled.modules in sys.meta_path:
    sys.meta_path.remove(compiled.modules)

from moldau.log.log import DEFAULT_FILES
from moldau.testing import ZooKeeper
from moldau.testing.broker import dotted
from support.brokers.processes import (
    AnyBroker,
    ApacheKafkaProcess,
    BrokerProcess,
    CreateTopic,
    ExternalBroker,
    StartBroker,
)
from support.brokers.zookeeper import start_zookeeper
from support.clients.raw import RawClient
from support.databases import servers

# The JVMs of tests run for seconds: an optimizing compiler costs more than it gains, on two cores half the time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# By default hypothesis fails an example that takes more than 0.2 s, which a busy machine causes too.
settings.register_profile("steady", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

# Logs that a test abandons, as a crash would, keep up to this many files open. py4j uses select(), which cannot handle
# more than a thousand.
DEFAULT_FILES.limit = 100

SWAPPED = os.environ.get("MOLDAU_TEST_SWAPPED") == "1"
BOOTSTRAP = os.environ.get("MOLDAU_TEST_BOOTSTRAP")
ON_APACHE = os.environ.get("MOLDAU_TEST_BROKER") == "apache"
PROCESS = ApacheKafkaProcess if ON_APACHE else BrokerProcess
SHORT_WAITS = {  # shorter than the defaults, so that tests of groups and transactions wait less
    "group.min.session.timeout.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 3000,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.assignment.interval.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
NO_RETENTION = {"log.initial.task.delay.ms": 86_400_000}  # records of any age stay


def pytest_configure(config: pytest.Config) -> None:
    distributes = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if SWAPPED and not distributes:  # this process has read it already; those that it starts have not
        os.environ[compiled.SWITCH] = "0"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests of a run in several processes."""
    from support.repository.distribution import GroupScheduling

    return GroupScheduling(config, log)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyBroker]:
    """One broker for all tests of this process that do not stop or reconfigure it."""
    if BOOTSTRAP:
        yield ExternalBroker(BOOTSTRAP)
        return
    process = PROCESS(tmp_path_factory.mktemp("broker"), SHORT_WAITS | NO_RETENTION).start()
    yield process
    process.close()


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    """One ZooKeeper server for all tests of this process that do not stop it; each test uses its own chroot."""
    with start_zookeeper() as server:
        yield server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[servers.Server]:
    """One PostgreSQL for all tests of this process."""
    with servers.postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[servers.Server]:
    """One MariaDB for all tests of this process."""
    with servers.mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def short_waits(broker: AnyBroker) -> dict[str, int]:
    """Settings with short timeouts for groups and transactions; the shared broker has them."""
    with RawClient(broker.bootstrap) as client:
        found = client.broker_configs()
    longer = [name for name, value in SHORT_WAITS.items() if int(found[name] or 0) > value]
    if longer:
        pytest.skip(f"needs a broker with shorter timeouts: {', '.join(longer)}")
    return SHORT_WAITS


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start brokers that belong to one test; `start_broker(max_connections=5)` sets `max.connections`."""
    if BOOTSTRAP:
        pytest.skip("needs its own broker: unset MOLDAU_TEST_BOOTSTRAP")
    started: list[BrokerProcess] = []

    def start(**settings: object) -> BrokerProcess:
        named = {dotted(name): value for name, value in settings.items()}
        process = PROCESS(tmp_path / f"broker-{len(started)}", named)
        started.append(process)
        process.start()
        return process

    yield start
    for process in started:
        process.close()


@pytest.fixture
def own_broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker that this test alone uses."""
    return start_broker()


@pytest.fixture
def on_apache() -> bool:
    """Whether `start_broker` starts Apache Kafka."""
    return ON_APACHE


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses; the topic does not exist yet."""
    return f"clt-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def create_topic(broker: AnyBroker, topic: str) -> Iterator[CreateTopic]:
    """Create topics on the shared broker: `create_topic(partitions=3, configs={…})` returns the name."""
    created: list[str] = []

    def create(partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        name = f"{topic}-{len(created)}"
        created.append(name)
        with RawClient(broker.bootstrap) as client:
            client.create_topic(name, partitions, configs or {})
        return name

    yield create
    if BOOTSTRAP and created:
        with RawClient(broker.bootstrap) as client:
            client.delete_topics(created)


@pytest.fixture
def raw(broker: AnyBroker) -> Iterator[RawClient]:
    """A raw connection to the shared broker."""
    with RawClient(broker.bootstrap) as client:
        yield client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the end of the log of every broker that a failing test used."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            if isinstance(value, BrokerProcess):
                report.sections.append((f"log of {name}", value.tail()))
        if "start_broker" in item.funcargs and "tmp_path" in item.funcargs:
            for log in sorted(item.funcargs["tmp_path"].glob("broker-*/broker.log")):
                report.sections.append((str(log), "\n".join(log.read_text(errors="replace").splitlines()[-60:])))
    return report


@pytest.fixture(scope="session")
def bootstrap(broker: AnyBroker) -> str:
    """The address of a running broker."""
    return broker.bootstrap
