"""TLS of a broker: settings of listeners, what stops a start, and which certificates replace others."""

import os
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from moldau.broker.node import EXIT_FAILED, run
from moldau.broker.settings import BrokerConfig, load
from moldau.broker.tls import BrokerTls, rules_of, settings_of, zookeeper_context
from moldau.net.key_stores import TlsProblem
from moldau.tools.certs.authority import Authority, Certificate, write_private

ISSUER = Authority()
USUAL = ("localhost", "127.0.0.1")


def config(keystore: Path, **more: object) -> BrokerConfig:
    given = {
        "listeners": "SSL://127.0.0.1:9093,OTHER://127.0.0.1:9094",
        "listener.security.protocol.map": "SSL:SSL,OTHER:PLAINTEXT",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keystore,
        **more,
    }
    return load({name: str(value) for name, value in given.items()})[0]


def written(path: Path, certificate: Certificate, at: int = 0) -> Path:
    write_private(path, certificate.keystore_pem())
    os.utime(path, ns=(at, at))
    return path


def test_a_listener_has_its_own_settings(tmp_path: Path) -> None:
    path = written(tmp_path / "own.pem", ISSUER.broker(USUAL))
    both = config(
        path,
        **{
            "ssl.client.auth": "required",
            "listener.name.ssl.ssl.client.auth": "requested",
            "listener.name.ssl.ssl.principal.mapping.rules": "RULE:CN=(.*)/$1/",
            "ssl.endpoint.identification.algorithm": "",
        },
    )
    listener = both.listeners[0]
    made = settings_of(both, listener)
    assert (made.client_auth, made.check_host_name) == ("requested", False)
    assert rules_of(both, listener)[0].replacement == "$1"


def test_only_encrypted_listeners_have_tls(tmp_path: Path) -> None:
    tls = BrokerTls(config(written(tmp_path / "own.pem", ISSUER.broker(USUAL))), "SSL")
    assert tls.listener("SSL") is not None
    assert tls.listener("OTHER") is None
    assert tls.client_context() is not None
    assert BrokerTls(config(tmp_path / "own.pem"), "OTHER").client_context() is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"ssl.keystore.location": "/nowhere/x.pem"}, "ssl.keystore.location /nowhere/x.pem cannot be read: No such"),
        (
            {"listener.name.ssl.ssl.keystore.location": "/nowhere/y.pem"},
            "listener.name.ssl.ssl.keystore.location /nowhere/y.pem cannot be read: No such",
        ),
        ({"ssl.keystore.location": ""}, "ssl.keystore.location is missing"),
        ({"ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols must be a list of TLSv1.2, TLSv1.3, got 'SSLv3'"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "ssl.principal.mapping.rules: 'RULE:x' is neither DEFAULT nor"),
        ({"ssl.client.auth": "required", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/nowhere/ca"},
         "ssl.truststore.location /nowhere/ca cannot be read"),
    ],
)  # fmt: skip
def test_what_stops_a_start(
    tmp_path: Path, more: dict[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "own.pem", ISSUER.broker(USUAL))
    static = dict(config(path).static) | {"log.dirs": str(tmp_path / "data")} | more
    assert run(static) == EXIT_FAILED
    (line,) = [each for each in capsys.readouterr().err.splitlines() if each.startswith("moldau: ")]
    assert words in line


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@pytest.mark.parametrize(
    ("renewed", "allowed", "words"),
    [
        (ISSUER.broker(USUAL), {}, ""),
        (ISSUER.broker([*USUAL, "more.example"]), {}, ""),
        (ISSUER.broker(["localhost"]), {}, "lacks alternative names of the old"),
        (ISSUER.broker(["localhost"]), {"ssl.allow.san.changes": "true"}, ""),
        (ISSUER.broker(USUAL, subject=named("x")), {}, "has another subject (CN=x instead of CN=localhost)"),
        (ISSUER.broker(USUAL, subject=named("x")), {"ssl.allow.dn.changes": "true"}, ""),
        (ISSUER.broker(USUAL, days=-1), {}, "the certificate expired on"),
    ],
)
def test_which_certificate_replaces_another(
    tmp_path: Path, renewed: Certificate, allowed: dict[str, str], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    path = written(tmp_path / "own.pem", ISSUER.broker(USUAL))
    settings = config(path, **allowed)
    tls = BrokerTls(settings, "SSL")
    listener = tls.listener("SSL")
    assert listener is not None
    before, client = listener.context, tls.client_context()
    tls.adapt(settings)
    assert (listener.context, caplog.messages) == (before, [])  # nothing has changed
    written(path, renewed, at=1_000_000_000)
    for _ in range(3):  # tried and told once
        tls.adapt(settings)
    assert (listener.context is before) is bool(words)
    assert (tls.client_context() is client) is bool(words)
    (line,) = caplog.messages
    assert words in line
    assert line.startswith("Listener SSL keeps its old" if words else "Listener SSL has new TLS settings")


def test_settings_that_could_not_be_used_are_told_before(tmp_path: Path) -> None:
    path = written(tmp_path / "own.pem", ISSUER.broker(USUAL))
    tls = BrokerTls(config(path), "SSL")
    assert tls.problem(config(path)) is None
    assert tls.problem(config(written(tmp_path / "new.pem", ISSUER.broker(USUAL)))) is None
    said = tls.problem(config(tmp_path / "none.pem"))
    assert said is not None
    assert said.startswith("Listener SSL cannot use these settings: ssl.keystore.location")


def test_zookeeper(tmp_path: Path) -> None:
    path = written(tmp_path / "own.pem", ISSUER.broker(USUAL))
    ca = write_private(tmp_path / "ca.pem", ISSUER.pem)
    assert zookeeper_context(config(path).values) is None
    given = {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.location": path}
    context = zookeeper_context(config(path, **given, **{"zookeeper.ssl.truststore.location": ca}).values)
    assert context is not None
    assert context.check_hostname
    with pytest.raises(TlsProblem, match=r"zookeeper\.ssl\.truststore\.location .*none\.p12 cannot be read"):
        zookeeper_context(config(path, **given, **{"zookeeper.ssl.truststore.location": "/none.p12"}).values)
