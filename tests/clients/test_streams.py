"""A Kafka Streams application with exactly_once_v2, the word count in java/, while brokers and applications restart.

Every word that goes in must come out once as the next count of that word: a record that is lost, taken twice, or seen
in an aborted transaction leaves a hole or a repetition in a word's counts. Needs a JDK.
"""

import random
import shutil
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, ResourceType

from support.brokers.processes import BrokerProcess, StartBroker
from support.clients import confluent
from support.clients.confluent import values_by_partition
from support.clients.raw import RawClient
from support.eventually import eventually
from support.kafka import jvm

SOURCE = Path(__file__).parent / "java" / "WordCount.java"
INPUT, OUTPUT = "lines", "word-count"
STORE = "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
PARTITIONS = 2
WORDS = ("river", "bridge", "castle", "rain", "sun", "mill", "boat", "stone", "reed", "town")
WORDS_PER_LINE = 5
PACE_S = 0.02
SECONDS = 60
WAYS: dict[str, Callable[[BrokerProcess], None]] = {"SIGTERM": BrokerProcess.stop, "kill -9": BrokerProcess.kill}

pytestmark = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the compiled application is; skipped where it cannot be compiled."""
    compiler = shutil.which("javac", path=str(Path(jvm.java() or "").parent)) or shutil.which("javac")
    if compiler is None:
        pytest.skip("javac is not installed; on Debian: apt-get install openjdk-17-jdk-headless")
    built = tmp_path_factory.mktemp("java")
    command = [compiler, "-cp", str(jvm.classpath()), "-d", str(built), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "package org.apache.kafka.streams does not exist" in done.stderr:
        pytest.skip("MOLDAU_KAFKA_CLASSPATH has no kafka-streams")
    assert done.returncode == 0, done.stderr
    return built


class Application:
    """The word count as a process, with a directory for its stores."""

    def __init__(self, program: Path, broker: BrokerProcess, directory: Path) -> None:
        self.log_file = directory / "application.log"
        self.stores = directory / "stores"
        path = f"{program}:{jvm.classpath()}"
        options = [str(jvm.java()), *jvm.QUICK_START, "-cp", path]
        self.command = [*options, "WordCount", broker.bootstrap, str(self.stores), INPUT, OUTPUT]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def told(self) -> str:
        return self.log_file.read_text()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it if it runs: a failure that it told of is the test's."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(SECONDS)
            finally:
                self.process.kill()
            assert "Exception" not in self.told(), self.told()


class Scene:
    """The application at work on a broker, what it was given, and what came out."""

    def __init__(self, broker: BrokerProcess, application: Application) -> None:
        self.broker, self.application = broker, application
        self.random = random.Random(7)
        self.given: Counter[str] = Counter()
        settings = {"message.timeout.ms": 2 * SECONDS * 1000, "reconnect.backoff.max.ms": 200, "linger.ms": 5}
        self.producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, **settings})

    def give(self, lines: int = 10) -> None:
        """So many lines of words, delivered as soon as the broker takes them."""
        for _ in range(lines):
            words = self.random.choices(WORDS, weights=range(1, len(WORDS) + 1), k=WORDS_PER_LINE)
            self.given.update(words)
            self.producer.produce(INPUT, " ".join(words))
        self.producer.poll(0)

    @contextmanager
    def giving(self) -> Iterator[None]:
        """Lines all the time, some every few milliseconds, so that whatever happens happens in the middle of work."""
        ending = threading.Event()

        def give() -> None:
            while not ending.wait(PACE_S):
                self.give()

        thread = threading.Thread(target=give)
        thread.start()
        try:
            yield
            self.wait_for_more()
        finally:
            ending.set()
            thread.join()

    def counts(self) -> dict[str, list[int]]:
        """The counts of each word in the order in which a reader of committed records gets them."""
        found: dict[str, list[int]] = defaultdict(list)
        for values in values_by_partition(self.broker.bootstrap, OUTPUT, PARTITIONS):
            for word, count in (value.split() for value in values):
                found[word].append(int(count))
        return found

    def counted(self) -> int:
        return sum(map(len, self.counts().values()))

    def wait_for_more(self) -> None:
        """Until so many more words are counted that some of them were given after this was called."""
        self.wait_for(self.given.total() + 1)

    def wait_for(self, count: int) -> None:
        eventually(lambda: self.counted() >= count, f"{count} words are counted", self.application.told)

    def wait_for_all(self) -> None:
        assert self.producer.flush(SECONDS) == 0
        self.wait_for(self.given.total())

    def check(self) -> None:
        """Every word once, and no count left out or told twice."""
        assert self.counts() == {word: list(range(1, count + 1)) for word, count in self.given.items()}


@pytest.fixture
def scene(start_broker: StartBroker, program: Path, tmp_path: Path) -> Iterator[Scene]:
    broker = start_broker(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=4)
    with RawClient(broker.bootstrap) as client:
        for name in (INPUT, OUTPUT):
            client.create_topic(name, PARTITIONS)
    application = Application(program, broker, tmp_path)
    application.start()
    yield Scene(broker, application)
    application.close()


@pytest.mark.parametrize("way", WAYS)
def test_words_are_counted_once_over_restarts_of_the_broker(scene: Scene, way: str) -> None:
    with scene.giving():
        for _ in range(2):
            scene.wait_for_more()
            WAYS[way](scene.broker)
            scene.broker.start()
    scene.wait_for_all()
    scene.check()


def test_an_application_that_dies_goes_on_from_its_topics(scene: Scene) -> None:
    """Its stores are lost with it: the counts come back from the compacted topic that Kafka Streams made for them."""
    with scene.giving():
        scene.wait_for_more()
        scene.application.kill()
        shutil.rmtree(scene.application.stores)
        scene.application.start()
    scene.wait_for_all()
    scene.check()


def test_the_topics_that_streams_makes(scene: Scene) -> None:
    """They have the settings that it asks for, and what was counted is deleted from the one in between."""
    scene.give(100)
    scene.wait_for_all()
    changelog, between = (f"{OUTPUT}-{STORE}-{kind}" for kind in ("changelog", "repartition"))
    admin = confluent.admin(scene.broker.bootstrap)
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in (changelog, between)]
    found = {each.name: future.result(SECONDS) for each, future in admin.describe_configs(asked).items()}
    assert found[changelog]["cleanup.policy"].value == "compact"
    settings = {name: found[between][name].value for name in ("cleanup.policy", "retention.ms")}
    assert settings == {"cleanup.policy": "delete", "retention.ms": "-1"}
    with RawClient(scene.broker.bootstrap) as client:

        def left() -> int:
            starts = [client.list_offset(between, -2, part).offset for part in range(PARTITIONS)]
            ends = [client.list_offset(between, -1, part).offset for part in range(PARTITIONS)]
            return sum(ends) - sum(starts)

        eventually(lambda: left() < scene.given.total() // 2, "what was counted is deleted")
    scene.check()
