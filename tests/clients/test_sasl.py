"""Logins with PLAIN and SCRAM: raw connections in every wrong state, sessions, and storms of logins.

Real clients are in test_logins.py.
"""

import struct
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest

from moldau.security.sasl_client import Sasl
from moldau.testing import Broker
from support.clients.raw import ConnectionEndedError, RawClient
from support.clients.sasl import (
    PLAIN_USERS,
    SCRAM_USERS,
    SCRAMS,
    SECONDS,
    add_scram_users,
    as_admin,
    client_settings,
    log_in,
    sasl_broker,
    set_password,
    shake,
)

UNSUPPORTED_MECHANISM, ILLEGAL_STATE, FAILED = 33, 34, 58
ALICE = Sasl("PLAIN", "alice", PLAIN_USERS["alice"])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with sasl_broker(**{"connection.failed.authentication.delay.ms": 50}) as started:
        add_scram_users(started.bootstrap_servers)
        yield started


@pytest.fixture
def raw(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as client:
        yield client


def test_a_client_without_sasl_learns_nothing(broker: Broker) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}).list_topics(timeout=2)


# ── states ──


def test_only_api_versions_is_answered_before_a_login(raw: RawClient) -> None:
    assert raw.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3).error_code == 0
    raw.send(MetadataRequest(topics=None), 1)
    assert raw.is_closed()


@pytest.mark.parametrize("key", [0, 1, 3, 36, 19, 999])
def test_any_other_request_ends_the_connection(raw: RawClient, key: int) -> None:
    raw.send_frame(struct.pack(">hhih", key, 0, 1, -1) + bytes(32))
    assert raw.is_closed()


def test_a_request_between_the_messages_of_a_login_ends_the_connection(raw: RawClient) -> None:
    assert shake(raw, "SCRAM-SHA-256").error_code == 0
    raw.send(MetadataRequest(topics=None), 1)
    assert raw.is_closed()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_after_a_login_requests_are_served(raw: RawClient, version: int) -> None:
    assert log_in(raw, ALICE, version).error == 0
    assert raw.ask(MetadataRequest(topics=None), 1).brokers


def test_a_second_login_is_not_needed_without_a_session_lifetime(raw: RawClient) -> None:
    assert log_in(raw, ALICE).lifetime_ms == 0
    assert shake(raw, "PLAIN").error_code == ILLEGAL_STATE
    assert raw.ask(SaslAuthenticateRequest(auth_bytes=b""), 2).error_code == ILLEGAL_STATE
    assert raw.ask(MetadataRequest(topics=None), 1).brokers


def test_an_unknown_mechanism_is_answered_with_the_known_ones(raw: RawClient) -> None:
    answer = shake(raw, "GSSAPI")
    assert answer.error_code == UNSUPPORTED_MECHANISM
    assert list(answer.mechanisms) == ["PLAIN", *SCRAMS]
    assert raw.is_closed()


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
@pytest.mark.parametrize("user", ["bob", "nobody"])
def test_a_failure_is_told_late_and_ends_the_connection(raw: RawClient, mechanism: str, user: str) -> None:
    begun = time.monotonic()
    found = log_in(raw, Sasl(mechanism, user, "wrong"))
    assert time.monotonic() - begun >= 0.05, "connection.failed.authentication.delay.ms"
    assert found.error == FAILED
    assert raw.is_closed()


@pytest.mark.parametrize("token", [b"", b"\0", b"\0alice", b"\xff" * 100, b"n,,n=x", b"x" * 400_000])
@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_hostile_tokens(raw: RawClient, mechanism: str, token: bytes) -> None:
    shake(raw, mechanism)
    assert raw.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == FAILED
    assert raw.is_closed()


def test_a_request_over_the_limit_ends_the_connection_before_it_is_read(raw: RawClient) -> None:
    """sasl.server.max.receive.size; the length is enough, and a larger one is fine after the login."""
    raw.socket.sendall(struct.pack(">i", 600_000))
    assert raw.is_closed()


def test_large_requests_are_fine_after_the_login(raw: RawClient) -> None:
    log_in(raw, ALICE)
    many = MetadataRequest(topics=None)
    raw.send(many, 1)
    raw.receive(many)
    raw.socket.sendall(struct.pack(">i", 600_000))
    assert raw.is_silent(0.3)


def test_half_a_token_waits(raw: RawClient) -> None:
    shake(raw, "PLAIN")
    frame = raw.frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + PLAIN_USERS["alice"].encode()), 2)
    raw.socket.sendall(frame[:-3])
    assert raw.is_silent(0.2)
    raw.socket.sendall(frame[-3:])
    assert len(raw.read_frame()) > 0


def test_requests_behind_the_token_wait_for_the_login(raw: RawClient) -> None:
    """Sent before the response came: they are read when the password was verified."""
    shake(raw, "PLAIN")
    token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + PLAIN_USERS["alice"].encode())
    metadata = MetadataRequest(topics=None)
    raw.socket.sendall(raw.frame(token, 2) + raw.frame(metadata, 1))
    assert raw.receive(token).error_code == 0
    assert raw.receive(metadata).brokers


def test_requests_behind_a_wrong_token_are_not_served(raw: RawClient) -> None:
    shake(raw, "PLAIN")
    token, metadata = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), MetadataRequest(topics=None)
    raw.socket.sendall(raw.frame(token, 2) + raw.frame(metadata, 1))
    assert raw.receive(token).error_code == FAILED
    assert raw.is_closed()


def test_tokens_without_headers_follow_the_first_version_of_the_handshake(raw: RawClient) -> None:
    assert shake(raw, "PLAIN", version=0).error_code == 0
    raw.send_frame(b"\0alice\0" + PLAIN_USERS["alice"].encode())
    assert raw.read_frame() == b""
    assert raw.ask(MetadataRequest(topics=None), 1).brokers


def test_a_wrong_token_without_header_has_no_response(raw: RawClient) -> None:
    shake(raw, "PLAIN", version=0)
    raw.send_frame(b"\0a\0b")  # shorter than any request
    assert raw.is_closed()


def test_sasl_requests_on_a_plain_listener(tmp_path: object) -> None:
    with Broker() as plain, RawClient(plain.bootstrap_servers) as client:
        assert shake(client, "PLAIN").error_code == ILLEGAL_STATE
        assert client.ask(SaslAuthenticateRequest(auth_bytes=b""), 2).error_code == ILLEGAL_STATE
        assert client.ask(MetadataRequest(topics=None), 1).brokers


def test_no_secret_is_in_the_log_or_in_configs(broker: Broker) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        log_in(client, Sasl("PLAIN", "alice", "typed-wrong"))
    with RawClient(broker.bootstrap_servers) as client:
        log_in(client, ALICE)
        configs = client.broker_configs()
    assert configs["listener.name.sasl_plaintext.plain.sasl.jaas.config"] is None
    secrets = [*PLAIN_USERS.values(), *SCRAM_USERS.values(), "typed-wrong"]
    assert not [each for each in secrets if each in broker.log_text() or each in str(configs)]


# ── sessions ──


def test_sessions_expire_unless_the_client_logs_in_again() -> None:
    with sasl_broker(**{"connections.max.reauth.ms": 1500}) as broker, RawClient(broker.bootstrap_servers) as client:
        assert log_in(client, ALICE).lifetime_ms == 1500
        assert client.ask(MetadataRequest(topics=None), 1).brokers
        time.sleep(1.0)
        assert log_in(client, ALICE).lifetime_ms == 1500
        time.sleep(1.0)
        assert client.ask(MetadataRequest(topics=None), 1).brokers, "the second login counts"
        time.sleep(1.0)
        assert log_in(client, ALICE).error == 0, "a handshake is accepted after the end, too"
        time.sleep(2.0)
        client.send(MetadataRequest(topics=None), 1)
        assert client.is_closed()


def test_another_user_or_mechanism_cannot_take_over_a_session() -> None:
    with sasl_broker(**{"connections.max.reauth.ms": 60_000}) as broker:
        add_scram_users(broker.bootstrap_servers)
        others = (Sasl("PLAIN", "admin", PLAIN_USERS["admin"]), Sasl("SCRAM-SHA-256", "bob", SCRAM_USERS["bob"]))
        for other, told in zip(others, ("Cannot change principals", "not supported for re-auth"), strict=True):
            with RawClient(broker.bootstrap_servers) as client:
                log_in(client, ALICE)
                found = log_in(client, other)
                assert found.error == FAILED
                assert told in str(found.message)
                assert client.is_closed()


def test_a_producer_goes_on_while_it_logs_in_again_and_its_password_changes() -> None:
    with sasl_broker(**{"connections.max.reauth.ms": 1200}) as broker:
        add_scram_users(broker.bootstrap_servers)
        admin = as_admin(broker.bootstrap_servers)
        settings = client_settings(broker.bootstrap_servers, "SCRAM-SHA-256", "bob", SCRAM_USERS["bob"])
        failures: list[str] = []
        producer = Producer(settings | {"error_cb": lambda error: failures.append(error.str())})
        written: list[object] = []
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            producer.produce("steady", b"x", on_delivery=lambda error, message: written.append(error))
            producer.poll(0.005)
        assert producer.flush(SECONDS) == 0
        assert not failures
        assert len(written) > 100
        assert not [error for error in written if error is not None]
        set_password(admin, "bob", "another", "SCRAM-SHA-256")
        deadline = time.monotonic() + SECONDS
        while not failures and time.monotonic() < deadline:
            producer.produce("steady", b"x")
            producer.poll(0.05)
        assert "authentication" in failures[0].lower(), "the old password ends with the session"


# ── many ──


def test_connections_that_never_log_in_stop_nobody(broker: Broker) -> None:
    idle = [RawClient(broker.bootstrap_servers) for _ in range(500)]
    try:
        begun = time.monotonic()
        with RawClient(broker.bootstrap_servers) as client:
            assert log_in(client, ALICE).error == 0
        assert time.monotonic() - begun < 5
    finally:
        for each in idle:
            each.socket.close()


def test_a_storm_of_plain_logins_stops_nobody_that_is_in(broker: Broker) -> None:
    stop = threading.Event()
    outcomes: list[int] = []

    def storm() -> None:
        while not stop.is_set():
            try:
                with RawClient(broker.bootstrap_servers) as client:
                    outcomes.append(log_in(client, Sasl("PLAIN", "bob", SCRAM_USERS["bob"])).error)
            except (ConnectionEndedError, OSError):
                outcomes.append(-1)

    with RawClient(broker.bootstrap_servers) as client:
        log_in(client, ALICE)
        threads = [threading.Thread(target=storm) for _ in range(40)]
        for thread in threads:
            thread.start()
        worst = 0.0
        until = time.monotonic() + 3
        while time.monotonic() < until:
            begun = time.monotonic()
            assert client.ask(MetadataRequest(topics=None), 1).brokers
            worst = max(worst, time.monotonic() - begun)
        stop.set()
        for thread in threads:
            thread.join()
    assert set(outcomes) == {0}
    assert worst < 1.0
