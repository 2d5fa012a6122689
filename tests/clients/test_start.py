"""How a broker starts and stops, as its operator sees it: one clear line for what is wrong, exit codes, clean marks."""

import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka.protocol.metadata import MetadataRequest

from support.brokers.fork_server import fork_server
from support.brokers.processes import (
    HOST,
    MOLDAU,
    ApacheKafkaProcess,
    BrokerProcess,
    StartBroker,
    broker_environment,
    free_port,
)
from support.clients.raw import RawClient
from support.kafka import jvm
from support.log.batches import Written, batch

pytestmark = pytest.mark.skipif(os.environ.get("MOLDAU_TEST_BROKER") == "apache", reason="about Moldau's own start")

MARKER = ".kafka_cleanshutdown"
STORE = "moldau-metadata.sqlite"
FAILED, MISUSED = 1, 2
CLUSTER = "Ka9zHpnTSTOrQmwWq_01Hg"
META = f"version=1\ncluster.id={CLUSTER}\nnode.id=1\ndirectory.id=2elvUbc5IYfLZOflgvI9og\n"
KRAFT = """
# The kind of file that comes with Kafka.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={directory}
num.partitions=2
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
group.initial.rebalance.delay.ms=0
"""


Owned = Callable[[BrokerProcess], BrokerProcess]


@pytest.fixture
def owned() -> Iterator[Owned]:
    """Kills a process at the end that the test did not stop."""
    taken: list[BrokerProcess] = []

    def take(broker: BrokerProcess) -> BrokerProcess:
        taken.append(broker)
        return broker

    yield take
    for broker in taken:
        if broker.process is not None:
            broker.kill()


def refused(*arguments: str | Path, code: int = FAILED) -> str:
    """What a broker says that does not start; its exit code is as expected, and there is no traceback."""
    done = fork_server().run(["broker", *map(str, arguments)], "", broker_environment(), 60)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert all(line.startswith("moldau: ") for line in lines), done.stderr
    return done.stderr


def refused_once(*arguments: str | Path, code: int = FAILED) -> str:
    """The same, in exactly one line."""
    (line,) = refused(*arguments, code=code).splitlines()
    return line


def at(directory: Path) -> tuple[str | Path, ...]:
    return "--dir", directory, "--listen", f"{HOST}:0"


# ── what is wrong with where ──


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused_once("--dir", tmp_path / "data", "--listen", f"{HOST}:{port}")
    assert line == (
        f"moldau: cannot listen on {HOST}:{port}: the port is in use; stop the other program, or choose another port "
        "with --listen or the setting listeners"
    )
    assert not (tmp_path / "data").exists(), "a lock and nothing else was left"


def test_an_address_that_is_not_ours(tmp_path: Path) -> None:
    authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"  # or it is warned of
    line = refused_once("--dir", tmp_path / "data", "--listen", "192.0.2.1:0", "--set", authorizer)
    assert "cannot listen on 192.0.2.1:0: " in line


def test_a_file_in_the_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot use the log directory" in refused_once(*at(tmp_path / "file"))
    assert "Not a directory" in refused_once(*at(tmp_path / "file" / "below"))


@contextmanager
def unwritable(directory: Path) -> Iterator[None]:
    """A directory that even root cannot write to, where that can be had."""
    directory.mkdir()
    if os.geteuid() != 0:
        directory.chmod(0o555)
        yield
        directory.chmod(0o755)
        return
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", directory], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("root writes everywhere, and this machine mounts nothing: run the tests as another user")
    yield
    subprocess.run(["umount", directory], check=True)


def test_an_unwritable_directory(tmp_path: Path) -> None:
    with unwritable(tmp_path / "readonly"):
        assert re.search("Read-only file system|Permission denied", refused_once(*at(tmp_path / "readonly")))
        assert re.search("Read-only file system|Permission denied", refused_once(*at(tmp_path / "readonly" / "new")))


def test_a_directory_in_use(start_broker: StartBroker) -> None:
    first = start_broker()
    line = refused_once(*at(first.data))
    assert line == f"moldau: the log directory {first.data} is in use by another broker; stop that one first"
    with RawClient(first.bootstrap) as client:
        client.create_topic("unharmed")


@pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")
def test_a_directory_in_use_by_apache_kafka_and_the_other_way_round(tmp_path: Path, owned: Owned) -> None:
    kafka = owned(ApacheKafkaProcess(tmp_path / "kafka"))
    kafka.start()
    line = refused_once(*at(kafka.data))
    assert line == f"moldau: the log directory {kafka.data} is in use by another broker; stop that one first"
    kafka.stop()
    moldau = owned(BrokerProcess(tmp_path / "moldau"))
    shutil.copytree(kafka.data, moldau.data)
    moldau.start()
    kafka.data = moldau.data
    with pytest.raises(RuntimeError, match="the broker ended with code 1"):
        kafka.start()
    moldau.stop()
    kafka.start()  # so it was the lock, and nothing else
    kafka.stop()


def test_one_directory_under_two_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    (tmp_path / "data").mkdir()
    line = refused_once(*at(tmp_path), "--set", f"log.dirs={tmp_path / 'data'},{tmp_path / 'link'}")
    assert line == f"moldau: the log directory {tmp_path / 'data'} is named twice in log.dirs"


# ── what is wrong with the settings ──


def test_all_problems_are_listed_with_the_nearest_names(tmp_path: Path) -> None:
    bad = ["num.partitons=3", "num.partitions=0", "log.retention.hours=soon", "listeners=PLAINTEXT//x"]
    told = refused(*at(tmp_path / "data"), *(part for each in bad for part in ("--set", each)), code=MISUSED)
    assert len(told.splitlines()) == 4
    assert "num.partitons; did you mean num.partitions?" in told
    assert "num.partitions must be at least 1, got 0" in told
    assert "log.retention.hours must be a plain whole number, got soon" in told
    assert "listeners" in told.splitlines()[-1]
    assert not (tmp_path / "data").exists(), "nothing was touched"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "nothing"), "'nothing' is not of the form key=value"),
        (("--listen", "9092"), "not of the form HOST:PORT"),
        (("--listen", "localhost:99999"), "Ports are 0 to 65535"),
        (("--config", "no-such-file"), "cannot read --config no-such-file: No such file or directory"),
        (("--nonsense",), "no such option: --nonsense"),
    ],
)
def test_a_wrong_command_line(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused_once(*arguments, code=MISUSED)


def test_a_malformed_properties_file(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=\\u00zz\n")
    assert "line 1" in refused_once("--config", tmp_path / "server.properties", code=MISUSED)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("".join(f"word{number} and more\n" for number in range(100)))
    lines = refused("--config", file, code=MISUSED).splitlines()
    assert lines[0] == f"moldau: {file}:1: Unknown broker config name: word0"
    assert lines[9] == f"moldau: {file}:10: Unknown broker config name: word9"
    assert lines[10:] == ["moldau: and 90 more problems. Is this a server.properties file?"]


def test_a_real_kraft_configuration_starts(tmp_path: Path, owned: Owned) -> None:
    """What has no meaning here is said in one line each, and the broker is there."""

    class Configured(BrokerProcess):
        def command(self) -> list[str]:
            return [*MOLDAU, "broker", "--config", str(self.directory / "server.properties")]

    broker = owned(Configured(tmp_path))
    text = KRAFT.format(port=broker.port, directory=broker.data)
    (tmp_path / "server.properties").write_text(text)
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert len(client.metadata("made", create=True, version=12).partitions) == 2
        hosts = {(each.host, each.port) for each in brokers(client)}
        assert hosts == {(HOST, broker.port)}, "the controller's listener is none of ours"
    said = broker.log_text()
    for name in ("process.roles", "num.io.threads", "controller.quorum.voters"):
        assert said.count(f" {name} has no meaning here") == 1, said
    assert said.count("CONTROLLER://:9093, which is not opened") == 1, said
    assert "num.partitions" not in said, "what is used is not warned about"
    broker.stop()


# ── what is wrong with what is there ──


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"garbage", "is damaged"),
        (b"\xff\xfe\0\1" * 20, "is damaged"),
        (META.replace("version=1", "version=9").encode(), "unknown version '9'"),
        (META.replace("2elvUbc5IYfLZOflgvI9og", "!").encode(), "directory.id is missing or wrong"),
        (META.replace("node.id=1", "node.id=x").encode(), "node.id or directory.id is missing or wrong"),
        (META.replace("node.id=1", "node.id=8").encode(), "belongs to node 8, not to node 1; .*--set node.id=8"),
    ],
)
def test_damaged_meta_properties(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "meta.properties").write_bytes(content)
    for _ in range(2):
        assert re.search(said, refused_once(*at(tmp_path)))
    assert (tmp_path / "meta.properties").read_bytes() == content


def test_directories_of_two_clusters(tmp_path: Path) -> None:
    for name, cluster in (("a", CLUSTER), ("b", "Kb9zHpnTSTOrQmwWq_01Hg")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(META.replace(CLUSTER, cluster))
    line = refused_once(*at(tmp_path), "--set", f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}")
    assert f"belongs to cluster Kb9zHpnTSTOrQmwWq_01Hg, not to cluster {CLUSTER}" in line


def test_a_damaged_store(tmp_path: Path) -> None:
    (tmp_path / STORE).write_bytes(os.urandom(5000))
    for _ in range(2):
        assert f"{tmp_path / STORE}: file is not a database" in refused_once(*at(tmp_path))


def test_a_store_damaged_in_the_middle(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        for number in range(20):
            client.create_topic(f"topic-{number}")
    broker.stop()
    store = broker.data / STORE
    data = bytearray(store.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    store.write_bytes(data)
    assert STORE in refused_once(*at(broker.data))
    assert store.read_bytes() == data, "what is damaged is not made worse"


def test_a_store_of_a_newer_moldau(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / STORE) as connection:
        connection.execute("CREATE TABLE future (x)")
        connection.execute("PRAGMA user_version = 99")
    assert "was written by a newer Moldau (format 99; " in refused_once(*at(tmp_path))


def test_a_store_that_cannot_be_written(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.stop()
    store = broker.data / STORE
    if os.geteuid() == 0:
        if subprocess.run(["chattr", "+i", store], capture_output=True, check=False).returncode:
            pytest.skip("root writes everywhere, and this file system has no chattr: run the tests as another user")
    else:
        store.chmod(0o444)
    try:
        line = refused_once(*at(broker.data))
    finally:
        if os.geteuid() == 0:
            subprocess.run(["chattr", "-i", store], check=True)
        store.chmod(0o644)
    assert STORE in line
    broker.start()


def test_a_start_that_fails_leaves_a_clean_directory_clean(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.stop()
    with socket.socket() as taken:
        taken.bind((HOST, broker.port))
        taken.listen()
        refused_once("--dir", broker.data, "--listen", broker.bootstrap)
    assert (broker.data / MARKER).exists()
    broker.start()


def test_two_stores_in_one_node(tmp_path: Path, start_broker: StartBroker) -> None:
    first = start_broker()
    first.stop()
    other = tmp_path / "other"
    shutil.copytree(first.data, other)
    assert "are the metadata of two nodes" in refused_once(*at(other), "--set", f"log.dirs={first.data},{other}")
    first.start()


# ── stopping ──


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_a_clean_stop(start_broker: StartBroker, number: signal.Signals) -> None:
    broker = start_broker()
    assert not (broker.data / MARKER).exists(), "only a stopped broker is marked as stopped"
    with RawClient(broker.bootstrap) as client:
        client.create_topic("t")
        client.produce("t", batch())
        assert broker.process is not None
        broker.process.send_signal(number)
        assert broker.process.wait(60) == 0
    broker.process = None
    assert (broker.data / MARKER).exists()
    assert "Traceback" not in broker.log_text()
    assert [line.split()[-1] for line in broker.log_text().splitlines()[-2:]] == ["Stopping", "Stopped"]
    broker.start()
    assert not (broker.data / MARKER).exists()


def test_a_second_signal_does_not_break_a_clean_stop(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        client.create_topic("t", 20)
        for partition in range(20):
            client.produce("t", batch(), partition)
    assert broker.process is not None
    process = broker.process
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.002)
    broker.process = None
    assert process.returncode == 0, broker.tail()
    assert "Traceback" not in broker.log_text()
    assert (broker.data / MARKER).exists()
    broker.start()


def test_kill_and_start(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        client.create_topic("t")
        assert client.produce("t", batch(Written(b"kept"))).error_code == 0
        cluster = client.cluster_id()
    broker.kill()
    assert not (broker.data / MARKER).exists()
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert client.cluster_id() == cluster
        assert client.list_offset("t", -1).offset == 1


def test_stopped_while_it_checks_its_logs(start_broker: StartBroker) -> None:
    """A recovery that takes long does not hold up a stop; the next start does all of it again."""
    broker = start_broker()
    topics = 400
    with RawClient(broker.bootstrap) as client:
        client.create_topic("t", topics)
        for partition in range(topics):
            client.produce("t", batch(Written(b"x" * 1000)), partition)
    broker.kill()
    with broker.log_file.open("ab") as log:
        process = subprocess.Popen(broker.command(), env=broker.environment(), stdout=log, stderr=log)
    while not _holds_lock(process.pid, broker.data):
        assert process.poll() is None, broker.tail()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (0, -signal.SIGTERM), broker.tail()  # the latter: before there was anything to stop
    assert "Traceback" not in broker.log_text()
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert [client.list_offset("t", -1, partition).offset for partition in range(topics)] == [1] * topics


def _holds_lock(pid: int, directory: Path) -> bool:
    links = Path(f"/proc/{pid}/fd")
    if not links.exists():
        pytest.skip("needs /proc to see when the broker has begun")
    try:
        return any(os.readlink(link).startswith(f"{directory}/t-") for link in links.iterdir())
    except FileNotFoundError:
        return False


# ── several directories, several listeners ──


def test_partitions_spread_over_the_directories_and_are_found_again(tmp_path: Path, owned: Owned) -> None:
    directories = [tmp_path / name for name in ("one", "two", "three")]
    broker = owned(BrokerProcess(tmp_path / "b", {"log.dirs": ",".join(map(str, directories))}))
    broker.start()
    with RawClient(broker.bootstrap) as client:
        client.create_topic("spread", 6)
        client.create_topic("single", 1)
        for partition in range(6):
            client.produce("spread", batch(), partition)
    spread = {path.name: len(list(path.glob("spread-*"))) for path in directories}
    assert spread == {"one": 2, "two": 2, "three": 2}
    homes = {path for directory in directories for path in directory.glob("s*-*")}
    broker.stop()
    assert all((path / MARKER).exists() for path in directories)
    broker.settings["log.dirs"] = ",".join(map(str, reversed(directories)))  # in another order, too
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert [client.list_offset("spread", -1, partition).offset for partition in range(6)] == [1] * 6
        assert {result.log_dir for result in client.log_dirs()} == {str(path) for path in directories}
    assert {path for directory in directories for path in directory.glob("s*-*")} == homes
    broker.stop()


def test_a_client_is_told_the_address_of_the_listener_it_asked(tmp_path: Path, owned: Owned) -> None:
    inner, outer = free_port(), free_port()
    broker = BrokerProcess(
        tmp_path,
        {
            "listeners": f"INNER://{HOST}:{inner},OUTER://{HOST}:{outer}",
            "advertised.listeners": f"INNER://{HOST}:{inner},OUTER://broker.example.org:443",
            "listener.security.protocol.map": "INNER:PLAINTEXT,OUTER:PLAINTEXT",
            "inter.broker.listener.name": "INNER",
        },
        port=inner,
    )
    owned(broker).start()
    for port, told in ((inner, (HOST, inner)), (outer, ("broker.example.org", 443))):
        with RawClient(f"{HOST}:{port}") as client:
            assert [(each.host, each.port) for each in brokers(client)] == [told]
    broker.stop()


def test_port_zero_is_a_free_port(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*MOLDAU, "up", "--no-services", "--dir", str(tmp_path / "data"), "--listen", f"{HOST}:0"],
        env=broker_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(3)]
    found = re.search(r"Broker\s+(127\.0\.0\.1:(\d+))", said[1])
    assert found, said
    with RawClient(found[1]) as client:
        assert [(each.host, each.port) for each in brokers(client)] == [(HOST, int(found[2]))]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


def brokers(client: RawClient) -> list[MetadataRequest]:
    return list(client.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12).brokers)


def test_too_few_file_descriptors_are_mentioned(tmp_path: Path, owned: Owned) -> None:
    broker = owned(BrokerProcess(tmp_path))
    with broker.log_file.open("ab") as log:
        process = subprocess.Popen(
            ["sh", "-c", 'ulimit -n 300; exec "$@"', "sh", *broker.command()],
            env=broker.environment(),
            stdout=log,
            stderr=log,
        )
    broker.process = process
    deadline = time.monotonic() + 60
    while "is ready" not in broker.log_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "The limit on open files and connections is only 300" in broker.log_text()
    ready = next(line for line in broker.log_text().splitlines() if "is ready" in line)
    assert f"ready at {broker.bootstrap} " in ready
    assert f"data in {broker.data}" in ready
    broker.stop()
