"""Logins of every client at one broker: each mechanism, with TLS and without, and certificates of clients.

A client is a function that takes the broker and a login, and returns "" if it was let in, or else the error.
"""

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from aiokafka.errors import KafkaError as AiokafkaError
from aiokafka.helpers import create_ssl_context
from confluent_kafka import KafkaError, KafkaException, Producer
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet
from kafka import KafkaAdminClient
from kafka.errors import KafkaError as KafkaPythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from moldau.client.direct.connection import Connection
from moldau.client.direct.security import Security, Tls
from moldau.security.sasl_client import AuthenticationFailed, Sasl
from moldau.testing import Broker
from moldau.tools.certs.authority import Authority, write_private
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.brokers.processes import free_port
from support.clients.sasl import PLAIN_USERS, SCRAM_USERS, SCRAMS, SECONDS, add_scram_users, jaas
from support.kafka import jvm

SASL_PLAINTEXT, SASL_SSL, SSL = "SASL_PLAINTEXT", "SASL_SSL", "SSL"
BEARER = "OAUTHBEARER"
MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    **dict.fromkeys(SCRAMS, "scram.ScramLoginModule"),
    BEARER: "oauthbearer.OAuthBearerLoginModule",
}
MECHANISMS = tuple(MODULES)
REFUSED_S = 2.0  # clients that retry give up after this time, if the login is wrong
KEY = ECKey.generate_key("P-256", {"kid": "one"})
STRANGER = ECKey.generate_key("P-256", {"kid": "one"})


@dataclass(frozen=True, slots=True)
class Login:
    good: bool
    protocol: str
    mechanism: str = ""
    user: str = ""
    secret: str = ""  # a password or a token
    certificate: Path | None = None

    def __str__(self) -> str:
        what = self.mechanism or ("a certificate" if self.certificate else "no certificate")
        return f"{'good' if self.good else 'bad'} {what} {self.user} {self.protocol}"

    @property
    def tls(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)


def token(key: ECKey = KEY, **others: str) -> str:
    """`others` are further claims."""
    now = int(time.time())
    claims = {"sub": "olga", "scope": "all", "iat": now, "exp": now + 600, **others}
    return jwt.encode({"alg": "ES256", "kid": "one"}, claims, key, algorithms=["ES256"])


class Secured:
    """A broker with a listener of each protocol. SSL wants a certificate of the client; sessions last SESSION_MS."""

    SESSION_MS = 4000  # franz-go logs in again a second before the end, and not within a second of the last login

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority, other = Authority(), Authority()
        self.ca = write_private(folder / "ca.pem", self._authority.pem)
        self.alice = write_private(folder / "alice.pem", self._authority.client("alice").keystore_pem())
        self.foreign = write_private(folder / "foreign.pem", other.client("alice").keystore_pem())
        self._keystore = folder / "broker.pem"
        self.renew()
        keys = folder / "jwks.json"
        keys.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
        self.ports = {name: free_port() for name in (SASL_SSL, SASL_PLAINTEXT, SSL)}
        users = jaas({f"user_{name}": password for name, password in PLAIN_USERS.items()})
        self.broker = Broker(
            folder / "data",
            **{
                "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "listener.name.sasl_ssl.plain.sasl.jaas.config": users,
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
                "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
                "connections.max.reauth.ms": self.SESSION_MS,
                "auto.create.topics.enable": "false",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self._keystore,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.ca,
                "listener.name.ssl.ssl.client.auth": "required",
            },
        ).start()
        add_scram_users(self.at(SASL_PLAINTEXT))

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def renew(self) -> None:
        """Another certificate in the key store of the broker, as a renewal puts it there."""
        made = self._authority.broker(["localhost", "127.0.0.1"])
        write_private(self.folder / "new.pem", made.keystore_pem()).rename(self._keystore)


def logins(server: Secured) -> Iterator[Login]:
    """Good and bad ones of each mechanism with and without TLS, names that SCRAM has to escape, and certificates."""
    bob = SCRAM_USERS["bob"]
    for protocol in (SASL_PLAINTEXT, SASL_SSL):
        for mechanism in ("PLAIN", *SCRAMS):
            yield Login(True, protocol, mechanism, "bob", bob)
            yield Login(False, protocol, mechanism, "bob", "wrong")
        yield Login(True, protocol, "PLAIN", "alice", PLAIN_USERS["alice"])
        yield Login(True, protocol, BEARER, secret=token())
        yield Login(False, protocol, BEARER, secret=token(STRANGER))
    for mechanism in SCRAMS:
        yield Login(True, SASL_PLAINTEXT, mechanism, "a,b=c", SCRAM_USERS["a,b=c"])
    yield Login(True, SSL, certificate=server.alice)
    yield Login(False, SSL)
    yield Login(False, SSL, certificate=server.foreign)


Client = Callable[[Secured, Login], str]


def wrong_outcomes(client: Client, server: Secured, wanted: list[Login], at_once: int = 8) -> list[str]:
    """What is not as it should be: a good login that was refused, or a bad one that was let in."""
    with ThreadPoolExecutor(at_once) as threads:
        told = threads.map(lambda login: client(server, login), wanted)
        return [
            f"{login}: {error or 'let in'}"
            for login, error in zip(wanted, told, strict=True)
            if bool(error) == login.good
        ]


# ── clients ──


def librdkafka_settings(server: Secured, login: Login) -> dict[str, str]:
    settings = {"bootstrap.servers": server.at(login.protocol), "security.protocol": login.protocol}
    if login.mechanism:
        settings["sasl.mechanism"] = login.mechanism
    if login.user:
        settings |= {"sasl.username": login.user, "sasl.password": login.secret}
    if login.tls:
        settings["ssl.ca.location"] = str(server.ca)
    if login.certificate:
        settings |= dict.fromkeys(("ssl.certificate.location", "ssl.key.location"), str(login.certificate))
    return settings


def confluent(server: Secured, login: Login) -> str:
    errors: list[KafkaError] = []
    settings: dict[str, Any] = librdkafka_settings(server, login) | {"error_cb": errors.append, "log_level": 0}
    if login.mechanism == BEARER:
        settings["oauth_cb"] = lambda _: (login.secret, time.time() + 600)
    producer, until = Producer(settings), time.monotonic() + SECONDS
    while time.monotonic() < until:
        producer.poll(0.1)
        if errors:
            return f"{errors[0].name()} {errors[0].str()}"
        try:
            return "" if producer.list_topics(timeout=0.3).brokers else "no brokers"
        except KafkaException:
            continue  # the reason comes through the callback
    return "neither let in nor refused"


class _KafkaPythonToken(KafkaPythonTokens):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


class _AiokafkaToken(AiokafkaTokens):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def _of_python(server: Secured, login: Login) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": server.at(login.protocol), "security_protocol": login.protocol}
    if login.mechanism:
        settings["sasl_mechanism"] = login.mechanism
    if login.user:
        settings |= {"sasl_plain_username": login.user, "sasl_plain_password": login.secret}
    return settings


def kafka_python(server: Secured, login: Login) -> str:
    settings = _of_python(server, login)
    if login.mechanism == BEARER:
        settings["sasl_oauth_token_provider"] = _KafkaPythonToken(login.secret)
    if login.tls:
        settings["ssl_cafile"] = str(server.ca)
    if login.certificate:
        settings |= dict.fromkeys(("ssl_certfile", "ssl_keyfile"), str(login.certificate))
    patience_s = SECONDS if login.good else REFUSED_S
    try:
        client = KafkaAdminClient(**settings, bootstrap_timeout_ms=int(patience_s * 1000))
    except KafkaPythonError as error:
        return repr(error)
    try:
        return "" if client.describe_cluster()["brokers"] else "no brokers"
    finally:
        client.close()


def aiokafka(server: Secured, login: Login) -> str:
    settings = _of_python(server, login)
    if login.mechanism == BEARER:
        settings["sasl_oauth_token_provider"] = _AiokafkaToken(login.secret)
    if login.tls:
        own = dict.fromkeys(("certfile", "keyfile"), str(login.certificate)) if login.certificate else {}
        settings["ssl_context"] = create_ssl_context(cafile=str(server.ca), **own)

    async def connect() -> str:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
        except AiokafkaError as error:
            return repr(error)
        finally:
            await producer.stop()
        return ""

    return asyncio.run(asyncio.wait_for(connect(), SECONDS))


def direct(server: Secured, login: Login) -> str:
    """Our own client, which Spark's tasks use."""
    own = str(login.certificate) if login.certificate else None
    tls = Tls(ca=str(server.ca), certificate=own) if login.tls else None
    sasl = None
    if login.mechanism:
        sasl = Sasl(login.mechanism, login.user, login.secret if login.user else "", token=login.secret)
    port = server.ports[login.protocol]
    try:
        connection = Connection("127.0.0.1", port, Security(tls, sasl), client_id="test", timeout_s=SECONDS)
    except (AuthenticationFailed, OSError) as error:
        return repr(error)
    try:
        return "" if connection.ask(MetadataRequest(topics=None), MetadataResponse).brokers else "no brokers"
    except OSError as error:
        return repr(error)
    finally:
        connection.close()


def kcat(program: str) -> Client:
    def run(server: Secured, login: Login) -> str:
        settings = librdkafka_settings(server, login)
        patience_s = int(SECONDS if login.good else REFUSED_S)
        command = [program, "-L", "-b", settings.pop("bootstrap.servers"), "-m", str(patience_s)]
        command += [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3 * SECONDS, check=False)
        return "" if done.returncode == 0 else done.stderr or f"exit code {done.returncode}"

    return run


def kcat_logins(program: str, server: Secured) -> list[Login]:
    """Those that it can do: it takes no signed token, and an old one fails with SCRAM, with Apache Kafka 4 as well."""
    told = subprocess.run([program, "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", told)
    assert found, told
    repeats_nonce = tuple(map(int, found.groups())) < (2, 6, 1)
    return [
        replace(each, good=each.good and not (repeats_nonce and each.mechanism in SCRAMS))
        for each in logins(server)
        if each.mechanism != BEARER
    ]


def go(client: Path) -> Client:
    def run(server: Secured, login: Login) -> str:
        environment = {"CLIENT_CA": str(server.ca)} if login.tls else {}
        if login.certificate:
            environment["CLIENT_CERTIFICATE"] = str(login.certificate)
        words = [login.mechanism, login.user, login.secret] if login.mechanism else []
        command = [str(client), "login", server.at(login.protocol), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=3 * SECONDS, check=False, env=environment
        )
        return "" if done.stdout.strip() == "1" else done.stderr or "no brokers"

    return run


def java(server: Secured, login: Login) -> str:
    """Kafka's tool for topics. Not for several threads: tools run one after the other in one JVM."""
    options = {"username": login.user, "password": login.secret} if login.user else {}
    settings = {"security.protocol": login.protocol, "default.api.timeout.ms": "20000", "request.timeout.ms": "20000"}
    properties: list[str] = []
    if login.mechanism:
        settings |= {"sasl.mechanism": login.mechanism, "sasl.jaas.config": jaas(options, MODULES[login.mechanism])}
    if login.mechanism == BEARER:
        file = write_private(server.folder / f"token-{login.good}", login.secret)
        handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        settings |= {"sasl.login.callback.handler.class": handler, "sasl.oauthbearer.token.endpoint.url": file.as_uri()}
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        properties = [f"{allowed}.urls={file.as_uri()}", f"{allowed}.files={file}"]
    if login.tls:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(server.ca)}
    if login.certificate:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(login.certificate)}
    config = write_private(server.folder / "java", "".join(f"{name}={value}\n" for name, value in settings.items()))
    at = ("--bootstrap-server", server.at(login.protocol), "--command-config", str(config))
    done = jvm.run(*properties, "org.apache.kafka.tools.TopicCommand", *at, "--list")
    return "" if done.returncode == 0 else done.stdout + done.stderr
