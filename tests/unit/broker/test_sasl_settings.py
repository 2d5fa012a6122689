"""SASL settings: listeners, mechanisms, JAAS strings, and what is refused."""

import pytest

from moldau.base.settings import SettingsRefused
from moldau.broker.security.sasl_settings import own_login, read_sasl
from moldau.broker.settings import load

SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9093",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
CLUSTER = SASL | {
    "zookeeper.connect": "localhost:2181",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}
OAUTH = SASL | {"sasl.enabled.mechanisms": "OAUTHBEARER"}


def test_only_sasl_listeners_have_it() -> None:
    config, warnings = load(SASL)
    assert not warnings
    (found,) = read_sasl(config).items()
    assert found[0] == "SASL_PLAINTEXT"
    assert found[1].mechanisms == ("PLAIN", "SCRAM-SHA-512")
    assert (found[1].failure_delay_ms, found[1].max_receive_size) == (100, 524_288)


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "listener.name.sasl_plaintext.sasl.jaas.config",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config",
        "listener.name.SASL_PLAINTEXT.PLAIN.sasl.jaas.config",
    ],
)
def test_users_of_a_jaas_string(name: str) -> None:
    config, _ = load(SASL | {name: f'{PLAIN} username="x" password="y" user_alice="one two" user_bob=\'2\';'})
    found = read_sasl(config)["SASL_PLAINTEXT"]
    assert found.passwords == {"alice": "one two", "bob": "2"}
    assert "one two" not in repr(found)


def test_the_string_of_another_mechanism_has_no_users_of_plain() -> None:
    config, _ = load(SASL | {"sasl.jaas.config": f'{SCRAM} username="x" password="y" user_alice="1";'})
    assert read_sasl(config)["SASL_PLAINTEXT"].passwords == {}


def test_mechanisms_have_their_own_session_lifetimes() -> None:
    given = {"connections.max.reauth.ms": "10", "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "20"}
    config, _ = load(SASL | given)
    assert read_sasl(config)["SASL_PLAINTEXT"].reauth_ms == {"PLAIN": 20, "SCRAM-SHA-512": 10}


def test_the_login_of_this_broker() -> None:
    config, _ = load(CLUSTER | {"listener.name.sasl_plaintext.plain.sasl.jaas.config": LOGIN})
    login = own_login(config, "SASL_PLAINTEXT")
    assert login is not None
    assert (login.mechanism, login.username, login.password) == ("PLAIN", "broker", "hush")
    assert own_login(config, "PLAINTEXT") is None


LOGIN = f'{PLAIN} username="broker" password="hush" user_broker="hush";'


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        (SASL | {"sasl.enabled.mechanisms": ""}, "must name a mechanism"),
        ({"listeners": SASL["listeners"]}, "GSSAPI on listener SASL_PLAINTEXT, which is not supported"),
        (SASL | {"sasl.jaas.config": "PlainLoginModule secret"}, "must begin with a login module"),
        (SASL | {"sasl.jaas.config": f'{PLAIN} user_alice="secret"'}, "must end with a semicolon"),
        (CLUSTER, "must have username and password"),
        (CLUSTER | {"sasl.jaas.config": f'{PLAIN} username="x";'}, "must have username and password"),
        (CLUSTER | {"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "must be one of sasl.enabled.mechanisms"),
        (CLUSTER | {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "must be one of"),
        (OAUTH, "must be a URL with file:"),
        (OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": "ftp://x"}, "must be a URL with file:"),
    ],
)
def test_refused_settings(properties: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsRefused) as refused:
        load(properties)
    assert words in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_url_may_be_missing_for_unsigned_tokens() -> None:
    config, _ = load(OAUTH | {"sasl.oauthbearer.unsafe.accept.unsigned.tokens.from.anyone": "true"})
    oauth = read_sasl(config)["SASL_PLAINTEXT"].oauth
    assert oauth is not None
    assert oauth.jwks_url is None
