"""Settings of the Python client: precedence, the environment, Java's names, profiles."""

from pathlib import Path

import pytest

from moldau.client.errors import InvalidUse
from moldau.client.settings import ClientSettings, build, read_settings

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="s3cret";'


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MOLDAU_BOOTSTRAP", raising=False)
    monkeypatch.delenv("MOLDAU_PROFILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def write_profile(directory: Path, name: str, text: str, mode: int = 0o600) -> None:
    path = directory / "moldau" / f"{name}.properties"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


# -- the cluster


def test_the_argument_names_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", "env:1")
    assert read_settings("arg:1", {"bootstrap.servers": "property:1"}).bootstrap == "arg:1"
    assert read_settings(None, {"bootstrap.servers": "property:1"}).bootstrap == "property:1"
    assert read_settings(None, {}).bootstrap == "env:1"
    monkeypatch.delenv("MOLDAU_BOOTSTRAP")
    assert read_settings(None, None).bootstrap == "localhost:9092"


def test_an_empty_address_is_refused() -> None:
    with pytest.raises(InvalidUse, match="no broker address"):
        read_settings(" ,", None)


def test_a_profile_of_the_environment_counts_if_the_caller_names_no_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_profile(tmp_path, "prod", "bootstrap.servers=prod:1\nsecurity.protocol=SSL\n")
    monkeypatch.setenv("MOLDAU_PROFILE", "prod")
    assert read_settings(None, None) == ClientSettings("prod:1", {"security.protocol": "SSL"})
    assert read_settings("other:1", None) == ClientSettings("other:1", {})
    assert read_settings(None, {}) == ClientSettings("localhost:9092", {})


@pytest.mark.parametrize(
    ("name", "problem"), [("../x", "is not a name"), ("none", "no profile 'none'"), ("open", "chmod 600")]
)
def test_a_bad_profile_is_refused(name: str, problem: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_profile(tmp_path, "open", "acks=all", mode=0o644)
    monkeypatch.setenv("MOLDAU_PROFILE", name)
    with pytest.raises(InvalidUse, match=problem):
        read_settings(None, None)


# -- files and Java's names


def test_a_file_of_a_java_client(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"sasl.jaas.config={PLAIN}\nssl.truststore.location=/etc/ca.pem\nfetch.max.wait.ms=7\n")
    expected = {
        "sasl.username": "ann",
        "sasl.password": "s3cret",
        "ssl.ca.location": "/etc/ca.pem",
        "fetch.wait.max.ms": "7",
    }
    assert read_settings("b:1", path).properties == read_settings("b:1", str(path)).properties == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max.request.size": 5}, {"message.max.bytes": 5}),
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": 32768}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"ssl.endpoint.identification.algorithm": "https"}, {"ssl.endpoint.identification.algorithm": "https"}),
        (
            {"ssl.keystore.location": "me.pem", "ssl.keystore.type": "PEM"},
            {"ssl.certificate.location": "me.pem", "ssl.key.location": "me.pem"},
        ),
        (
            {"ssl.keystore.location": "me.p12", "ssl.keystore.password": "p"},
            {"ssl.keystore.location": "me.p12", "ssl.keystore.password": "p"},
        ),
        (
            {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"},
            {"partition.assignment.strategy": "cooperative-sticky"},
        ),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://t", "sasl.login.callback.handler.class": ""},
            {"sasl.oauthbearer.token.endpoint.url": "https://t", "sasl.oauthbearer.method": "oidc"},
        ),
        ({"max.poll.records": 10, "metric.reporters": "x"}, {}),
        ({"queue.buffering.max.ms": 3}, {"linger.ms": 3}),
        ({"statistics.interval.ms": 3}, {"statistics.interval.ms": 3}),
    ],
)
def test_properties_of_java_clients(given: dict[str, object], expected: dict[str, object]) -> None:
    assert read_settings("b:1", given).properties == expected


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"key.serializer": "org.example.Mine"}, "key.serializer cannot be set here: give key= and value="),
        ({"partitioner.class": "org.example.Mine"}, "give partitioner="),
        ({"buffer.memory": "much"}, "buffer.memory must be a number"),
        ({"sasl.jaas.config": "s3cret"}, "sasl.jaas.config must begin with a login module"),
        ({"ssl.truststore.location": "t.jks", "ssl.truststore.type": "JKS"}, "convert it to PEM"),
        ({"ssl.keystore.location": "t.jks", "ssl.keystore.type": "JKS"}, "convert it to PKCS12 or PEM"),
        ({"sasl.login.callback.handler.class": "org.example.Mine"}, "a Java class cannot run"),
    ],
)
def test_properties_that_cannot_be_said(given: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidUse, match=problem) as refused:
        read_settings("b:1", given)
    assert "s3cret" not in str(refused.value)


def test_a_file_is_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("sasl.jaas.config=x\n")
    with pytest.raises(InvalidUse, match=r"client\.properties: sasl\.jaas\.config must"):
        read_settings("b:1", path)
    with pytest.raises(InvalidUse, match=r"cannot read .*missing: No such file"):
        read_settings("b:1", tmp_path / "missing")


# -- librdkafka's configuration


def test_an_argument_wins_over_a_property_and_that_over_a_default() -> None:
    settings = read_settings("b:1", {"queue.buffering.max.ms": 2, "acks": 1})
    defaults = {"linger.ms": 5, "acks": "all", "retries": 7}
    found = settings.configuration(defaults, {"linger.ms": 3, "acks": None, "client.id": "me"}, {})
    del found["logger"]
    assert found == {"bootstrap.servers": "b:1", "client.id": "me", "linger.ms": 3, "acks": 1, "retries": 7}


def test_properties_that_the_client_sets_itself() -> None:
    with pytest.raises(InvalidUse, match=r"group\.id cannot be set: give group="):
        read_settings("b:1", {"group.id": "g"}).configuration({}, {}, {"group.id": "give group="})
    with pytest.raises(InvalidUse, match="stats_cb cannot be set: give on_stats"):
        read_settings("b:1", {"stats_cb": print}).configuration({}, {}, {})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"no.such": 1}, 'No such configuration property: "no.such"'),
        ({"linger.ms": "x"}, "Invalid value"),
        ({"acks": 1, "enable.idempotence": True}, "`acks` must be set to `all`"),
        ({"oauth_cb": 3}, "librdkafka does not take"),
    ],
)
def test_a_property_that_librdkafka_refuses(given: dict[str, object], problem: str) -> None:
    from confluent_kafka import Producer

    with pytest.raises(InvalidUse, match=problem):
        build(Producer, read_settings("127.0.0.1:1", given).configuration({}, {}, {}))
