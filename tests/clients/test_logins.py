"""Every client with every mechanism, with TLS and without, and with certificates: good logins get in, bad ones do not.

And what happens under load: sessions that end, a renewed certificate, another password.
"""

import os
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.access import MECHANISM, Access
from chaos.access import Login as ChaosLogin
from chaos.checker import check
from chaos.history import Failed, Recorder
from chaos.workloads.base import Workload
from chaos.workloads.read import read_everything
from chaos.workloads.table import Cast, available, cast_of
from moldau.client.admin import organisations
from moldau.client.admin.cluster import open_cluster
from moldau.client.admin.target import Target
from moldau.security.organisations import Limits, Role
from moldau.tools.certs.authority import Authority, write_private
from support.clients.go import WITHOUT_GO
from support.clients.sasl import PLAIN_USERS, SCRAM_USERS, as_admin, set_password
from support.eventually import eventually
from support.kafka import jvm
from support.security.logins import (
    BEARER,
    MECHANISMS,
    SASL_PLAINTEXT,
    SASL_SSL,
    SSL,
    Client,
    Login,
    Secured,
    aiokafka,
    confluent,
    direct,
    go,
    java,
    kafka_python,
    kcat,
    kcat_logins,
    librdkafka_settings,
    logins,
    wrong_outcomes,
)

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
SESSIONS = 2  # of each client under load
LIBRARIES = ["idempotent", "aiokafka", "kafka-python", "go", "direct"]
if os.environ.get("MOLDAU_FULL"):
    LIBRARIES.append("java")  # two JVMs


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("logins"))
    yield made
    made.broker.stop()


# ── logins ──


@pytest.mark.parametrize("client", [confluent, aiokafka, direct], ids=lambda client: str(client.__name__))
def test_libraries(secured: Secured, client: Client) -> None:
    assert wrong_outcomes(client, secured, list(logins(secured))) == []


def test_confluent_is_told_what_is_wrong(secured: Secured) -> None:
    words = {"PLAIN": "Invalid username or password", BEARER: ""}
    for mechanism in MECHANISMS:
        login = Login(False, SASL_PLAINTEXT, mechanism, "" if mechanism == BEARER else "bob", "wrong")
        told = confluent(secured, login)
        assert told.startswith("_AUTHENTICATION"), told
        assert words.get(mechanism, f"with SASL mechanism {mechanism}") in told


def test_kafka_python(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    wanted = [each for each in logins(secured) if each.user != "a,b=c"]  # it does not escape names
    assert wrong_outcomes(kafka_python, secured, wanted, at_once=len(wanted)) == []
    assert "SaslAuthenticationFailedError" in caplog.text, "and not a lost connection"


@WITHOUT_GO
def test_go(secured: Secured, go_program: Path) -> None:
    client, wanted = go(go_program), list(logins(secured))
    assert wrong_outcomes(client, secured, wanted) == []
    assert "SASL_AUTHENTICATION_FAILED" in client(secured, next(each for each in wanted if not each.good))


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed; on Debian: apt-get install kcat")
def test_kcat(secured: Secured) -> None:
    client, wanted = kcat(str(KCAT)), kcat_logins(str(KCAT), secured)
    assert wrong_outcomes(client, secured, wanted) == []
    for mechanism, words in (("PLAIN", "Invalid username or password"), (MECHANISM, "Authentication failed")):
        bad = next(each for each in wanted if each.mechanism == mechanism and not each.good)
        assert words in client(secured, bad)


@pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")
def test_java(secured: Secured) -> None:
    wanted = [each for each in logins(secured) if each.user in ("", "bob")]  # each takes half a second
    assert wrong_outcomes(java, secured, wanted, at_once=1) == []


def test_a_client_without_a_login_or_without_trust_is_refused(secured: Secured) -> None:
    good = librdkafka_settings(secured, Login(True, SASL_SSL, "PLAIN", "alice", PLAIN_USERS["alice"]))
    stranger = write_private(secured.folder / "stranger.pem", Authority().pem)
    for changed in ({"security.protocol": SSL}, {"ssl.ca.location": str(stranger)}):
        errors: list[KafkaError] = []
        producer = Producer({**good, **changed, "error_cb": errors.append, "log_level": 0})
        eventually(lambda: producer.poll(0.1) or errors, "it is refused")  # noqa: B023
        with pytest.raises(KafkaException):
            producer.list_topics(timeout=0.5)


# ── under load ──


@contextmanager
def loaded(
    secured: Secured, recorder: Recorder, *without: str, user: str = "bob", password: str = SCRAM_USERS["bob"]
) -> Iterator[Cast]:
    """Producers and readers of each library, which are started, over SASL_SSL."""
    names = [name for name in LIBRARIES if name in available() and name not in without]
    login = ChaosLogin(user, password, secured.ca)
    cast = cast_of(names, Access(secured.at(SASL_SSL), login), recorder, seed=1, rate=50.0)
    admin = AdminClient(cast.access.librdkafka)
    for created in admin.create_topics([NewTopic(name, count, 1) for name, count in cast.topics.items()]).values():
        created.result(30)
    try:
        for each in cast.clients:
            each.start()
        await_more(cast.clients)
        yield cast
    finally:
        for each in cast.clients:
            each.abandon()
        for deleted in admin.delete_topics(list(cast.topics)).values():
            deleted.result(30)


def await_more(clients: list[Workload]) -> None:
    wanted = {each: each.acked + 20 for each in clients}

    def behind() -> list[str]:
        return [each.name for each, least in wanted.items() if each.acked < least and each.broken is None]

    eventually(lambda: not behind(), "every client goes on", behind)
    assert {each.name: each.broken for each in clients if each.broken is not None} == {}


def serial_number(secured: Secured) -> str:
    """Of the certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=str(secured.ca))
    with (
        socket.create_connection(("127.0.0.1", secured.ports[SASL_SSL])) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        return str((tls.getpeercert() or {})["serialNumber"])


def test_clients_go_on_while_sessions_end_and_the_certificate_is_renewed(secured: Secured) -> None:
    recorder, old = Recorder(), serial_number(secured)
    with loaded(secured, recorder) as cast:
        until = time.monotonic() + SESSIONS * Secured.SESSION_MS / 1000
        secured.renew()
        eventually(lambda: serial_number(secured) != old, "the new certificate is shown", secured.broker.log_text)
        while time.monotonic() < until:
            await_more(cast.clients)
        cast.end()
        read_everything(cast.access, recorder, cast.topics)
    assert check(recorder.events) == []
    assert [each for each in recorder.events if isinstance(each, Failed)] == []


def test_a_changed_password_ends_the_sessions_of_the_old_one(secured: Secured) -> None:
    admin = as_admin(secured.at(SASL_PLAINTEXT))
    with loaded(secured, Recorder(), "java") as cast:
        try:
            set_password(admin, "bob", "another", MECHANISM)

            def quiet() -> bool:
                before = [each.acked for each in cast.clients]
                time.sleep(Secured.SESSION_MS / 2000)
                return before == [each.acked for each in cast.clients]

            eventually(quiet, "no client goes on", lambda: {each.name: each.acked for each in cast.clients})
            assert confluent(secured, Login(True, SASL_SSL, MECHANISM, "bob", "another")) == ""
            assert confluent(secured, Login(False, SASL_SSL, MECHANISM, "bob", SCRAM_USERS["bob"])) != ""
        finally:
            set_password(admin, "bob", SCRAM_USERS["bob"], MECHANISM)
        for each in cast.clients:
            each.abandon()
        for each in cast.clients:
            each.finish()  # with the old password, which counts again


def test_every_library_works_in_an_organisation(secured: Secured) -> None:
    """Under names of its own: on the cluster its topics begin with `acme.`."""
    admin = as_admin(secured.at(SASL_PLAINTEXT))
    set_password(admin, "acme/alice", "secret", MECHANISM)
    with open_cluster(Target(secured.at(SASL_PLAINTEXT), as_admin_properties())) as cluster:
        organisations.create(cluster, "acme", Limits())
        for name in LIBRARIES:  # their topics have these names
            organisations.change(cluster, "acme", organisations.with_product(name, Limits(), new=True))
        organisations.change(cluster, "acme", organisations.with_roles("alice", [("*", Role.ADMIN)]))
    recorder = Recorder()
    with loaded(secured, recorder, user="acme/alice", password="secret") as cast:
        on_cluster = admin.list_topics(timeout=30).topics
        assert {f"acme.{name}" for name in cast.topics} <= on_cluster.keys()
        await_more(cast.clients)
        cast.end()
        read_everything(cast.access, recorder, cast.topics)
    assert check(recorder.events) == []
    assert [each for each in recorder.events if isinstance(each, Failed)] == []


def as_admin_properties() -> dict[str, str]:
    login = {"sasl.username": "admin", "sasl.password": PLAIN_USERS["admin"]}
    return {"security.protocol": SASL_PLAINTEXT, "sasl.mechanism": "PLAIN", **login}
