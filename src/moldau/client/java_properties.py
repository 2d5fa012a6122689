"""Properties of Java's clients as librdkafka's: other names, other values, no effect, or refused.

Names that both know, and names that only librdkafka knows, pass unchanged. A value never appears in an error: it may be
a password.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from moldau.client.errors import InvalidUse
from moldau.security.jaas import read_jaas

Value: TypeAlias = object  # a text, a number, a flag, or a function for librdkafka's callbacks

# Java's name, or a second name of librdkafka's → the one name that this library uses.
RENAMED = {
    "compression.codec": "compression.type",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "max.request.size": "message.max.bytes",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl.mechanism",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}

# They tune Java's client, and neither change what is read or written nor who is trusted; librdkafka lacks them.
WITHOUT_EFFECT = frozenset(
    {
        "auto.include.jmx.reporter",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "max.poll.records",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "ssl.keymanager.algorithm",
        "ssl.keystore.type",  # read together with ssl.keystore.location
        "ssl.protocol",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.password",  # certificates are public
        "ssl.truststore.type",
    }
)

SERIALIZERS = "give key= and value= to the client instead"
REFUSED = {
    "config.providers": "write the values themselves",
    "interceptor.classes": "a Java class cannot run here; give interceptors= to the client",
    "key.deserializer": SERIALIZERS,
    "key.serializer": SERIALIZERS,
    "partitioner.class": "a Java class cannot run here; give partitioner= to the producer",
    "partitioner.ignore.keys": "leave out the key instead",
    "value.deserializer": SERIALIZERS,
    "value.serializer": SERIALIZERS,
}

JAAS = "sasl.jaas.config"
FROM_JAAS = {
    "username": "sasl.username",
    "password": "sasl.password",
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
STORE_TYPES = ("PEM", "PKCS12")
KIBIBYTE = 1024


def translate(properties: Mapping[str, Value]) -> dict[str, Value]:
    """The properties by librdkafka's names; raises `InvalidUse` for what cannot be said to librdkafka."""
    found: dict[str, Value] = {}
    for name, value in properties.items():
        if name in REFUSED:
            raise InvalidUse(f"the property {name} cannot be set here: {REFUSED[name]}")
        if name in SPECIAL:
            found |= SPECIAL[name](value, properties)
        elif name not in WITHOUT_EFFECT:
            found[RENAMED.get(name, name)] = value
    return found


def _login(value: Value, properties: Mapping[str, Value]) -> dict[str, Value]:
    login = read_jaas(str(value))
    if isinstance(login, str):
        raise InvalidUse(f"{JAAS} must {login}")
    return {ours: login.options[name] for name, ours in FROM_JAAS.items() if name in login.options}


def _trust_store(value: Value, properties: Mapping[str, Value]) -> dict[str, Value]:
    kind = _store_type("ssl.truststore.type", properties)
    if kind != "PEM":
        raise InvalidUse(f"a trust store of type {kind} cannot be read: convert it to PEM (ssl.truststore.type=PEM)")
    return {"ssl.ca.location": value}


def _key_store(value: Value, properties: Mapping[str, Value]) -> dict[str, Value]:
    kind = _store_type("ssl.keystore.type", properties)
    if kind not in STORE_TYPES:
        raise InvalidUse(f"a key store of type {kind} cannot be read: convert it to PKCS12 or PEM")
    if kind == "PEM":
        return {"ssl.certificate.location": value, "ssl.key.location": value}
    return {"ssl.keystore.location": value}


def _store_type(name: str, properties: Mapping[str, Value]) -> str:
    """Of a key or trust store; Java's default is JKS, and its tools write PKCS12 into files of any name."""
    location = str(properties.get(name.replace(".type", ".location"), ""))
    by_name = "PEM" if location.endswith((".pem", ".crt", ".cer")) else "PKCS12"
    return str(properties.get(name, by_name)).upper()


def _host_names(value: Value, properties: Mapping[str, Value]) -> dict[str, Value]:
    return {"ssl.endpoint.identification.algorithm": value or "none"}


def _buffer(value: Value, properties: Mapping[str, Value]) -> dict[str, Value]:
    try:
        size = int(str(value))
    except ValueError:
        raise InvalidUse("buffer.memory must be a number of bytes") from None
    return {"queue.buffering.max.kbytes": max(1, size // KIBIBYTE)}


def _token_endpoint(value: Value, properties: Mapping[str, Value]) -> dict[str, Value]:
    return {"sasl.oauthbearer.token.endpoint.url": value, "sasl.oauthbearer.method": "oidc"}


def _login_handler(value: Value, properties: Mapping[str, Value]) -> dict[str, Value]:
    """Kafka's own handler asks the token endpoint, as librdkafka does; a class of the user's cannot run here."""
    if str(value).rpartition(".")[2] not in ("", "OAuthBearerLoginCallbackHandler"):
        raise InvalidUse("sasl.login.callback.handler.class cannot be set here: a Java class cannot run")
    return {}


def _assignors(value: Value, properties: Mapping[str, Value]) -> dict[str, Value]:
    known = {
        "RangeAssignor": "range",
        "RoundRobinAssignor": "roundrobin",
        "CooperativeStickyAssignor": "cooperative-sticky",
    }
    names = [part.strip().rpartition(".")[2] for part in str(value).split(",")]
    return {"partition.assignment.strategy": ",".join(known.get(name, name) for name in names)}


SPECIAL: Mapping[str, Callable[[Value, Mapping[str, Value]], dict[str, Value]]] = {
    JAAS: _login,
    "buffer.memory": _buffer,
    "partition.assignment.strategy": _assignors,
    "sasl.login.callback.handler.class": _login_handler,
    "sasl.oauthbearer.token.endpoint.url": _token_endpoint,
    "ssl.endpoint.identification.algorithm": _host_names,
    "ssl.keystore.location": _key_store,
    "ssl.truststore.location": _trust_store,
}
