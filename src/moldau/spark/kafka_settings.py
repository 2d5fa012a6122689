"""The `kafka.*` settings: which of a Java client's our client uses, which mean nothing to it, which are refused.

Every name of Kafka's consumer and producer is in one of the tables, so that a misspelt one is noticed. A setting that
would change what is read, written or trusted, and that we do not honour, is refused and never silently dropped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moldau.base.settings import Kind, Setting, SettingError, Table, Value, shortened

PREFIX = "kafka."
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _text(name: str, doc: str, default: str | None = None) -> Setting:
    return Setting(f"{PREFIX}{name}", Kind.STRING, default, doc=doc)


def _choice(name: str, choices: tuple[str, ...], default: str | None, doc: str) -> Setting:
    return Setting(f"{PREFIX}{name}", Kind.STRING, default, choices=choices, any_case=True, doc=doc)


def _secret(name: str, doc: str) -> Setting:
    return Setting(f"{PREFIX}{name}", Kind.PASSWORD, doc=doc)


def _number(name: str, default: int, doc: str, *, least: int = 0, most: int | None = None) -> Setting:
    return Setting(f"{PREFIX}{name}", Kind.INT, default, least=least, most=most, doc=doc)


CONNECTION = (
    _text("bootstrap.servers", "Brokers to ask first, as host:port with commas between them."),
    _text("client.id", "What the broker calls this client in its logs and quotas.", "moldau-spark"),
    _text("client.rack", "Where this client stands, for brokers that tell readers of a nearer replica.", ""),
    _choice("security.protocol", PROTOCOLS, "PLAINTEXT", "How to connect."),
    _number("request.timeout.ms", 30_000, "How long an answer may take.", least=1),
    _number("socket.connection.setup.timeout.ms", 10_000, "How long a connection may take to be made.", least=1),
    _number("retry.backoff.ms", 100, "The first pause before something is tried again."),
    _number("retry.backoff.max.ms", 1_000, "The longest pause before something is tried again."),
)
READING = (
    _text("group.id", "The group in whose name progress is reported; queries of one group do not share partitions."),
    _choice(
        "isolation.level",
        ("read_uncommitted", "read_committed"),
        "read_uncommitted",
        "Whether records of transactions that are open or aborted are read.",
    ),
    _number("fetch.min.bytes", 1, "The broker waits for this many bytes."),
    _number("fetch.max.bytes", 50 * 2**20, "An answer has about this many bytes at most.", least=1024),
    _number("max.partition.fetch.bytes", 4 * 2**20, "And about this many of one partition."),
    _number("fetch.max.wait.ms", 500, "How long the broker waits for them."),
    Setting(f"{PREFIX}check.crcs", Kind.BOOL, True, doc="Whether the checksum of each batch is looked at."),
)
WRITING = (
    _choice("acks", ("all", "-1", "0", "1"), "all", "Who must have a batch before it counts as written."),
    _choice("compression.type", CODECS, "none", "The codec of batches."),
    _number("batch.size", 512 * 1024, "A batch has this many bytes at most, before compression."),
    _number("max.request.size", 2**20, "A record has this many bytes at most."),
    _number("delivery.timeout.ms", 120_000, "How long a batch may take, all tries together."),
    _number("transaction.timeout.ms", 900_000, "The broker aborts a transaction that is open longer.", least=1),
    Setting(f"{PREFIX}enable.idempotence", Kind.BOOL, True, doc="Whether the broker drops batches that come twice."),
)
SECURITY = (
    _choice("sasl.mechanism", MECHANISMS, None, "How to authenticate."),
    _secret("sasl.jaas.config", "A Java client's login module with its options."),
    _text("sasl.username", "The user, for those who have no JAAS string."),
    _secret("sasl.password", "And the password."),
    _text("sasl.login.callback.handler.class", "Kafka's own OAuthBearerLoginCallbackHandler, or none."),
    _text("sasl.oauthbearer.token.endpoint.url", "Where tokens come from: https:, or file: for one that is ready."),
    _text("sasl.oauthbearer.client.credentials.client.id", "Who asks for a token."),
    _secret("sasl.oauthbearer.client.credentials.client.secret", "And its secret."),
    _text("sasl.oauthbearer.scope", "What the token is to be good for."),
    _text("ssl.truststore.type", "PEM."),
    _text("ssl.truststore.location", "A PEM file with the certificates to trust."),
    _secret("ssl.truststore.certificates", "Those certificates themselves, as PEM."),
    _secret("ssl.truststore.password", "Of no use with PEM."),
    _text("ssl.keystore.type", "PEM."),
    _text("ssl.keystore.location", "A PEM file with this client's key and certificates."),
    _secret("ssl.keystore.certificate.chain", "This client's certificates themselves, as PEM."),
    _secret("ssl.keystore.key", "This client's key itself, as PEM."),
    _secret("ssl.keystore.password", "Of no use with PEM."),
    _secret("ssl.key.password", "What the key is encrypted with."),
    _text("ssl.ca.location", "As ssl.truststore.location with PEM."),
    _text("ssl.certificate.location", "A PEM file with this client's certificates."),
    _text("ssl.key.location", "A PEM file with this client's key."),
    _choice(
        "ssl.endpoint.identification.algorithm",
        ("https", ""),
        "https",
        "https: the certificate must be for the host; empty: it need not.",
    ),
    Setting(
        f"{PREFIX}ssl.enabled.protocols",
        Kind.LIST,
        ("TLSv1.2", "TLSv1.3"),
        choices=("TLSv1.2", "TLSv1.3"),
        doc="Versions of TLS to offer.",
    ),
)
KAFKA = Table("Kafka", (*CONNECTION, *READING, *WRITING, *SECURITY))

# Tunings of Java's client and of group membership, which neither Spark's source nor ours has: taken and not used.
WITHOUT_EFFECT = frozenset(
    f"{PREFIX}{name}"
    for name in [
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "buffer.memory",
        "client.dns.lookup",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "linger.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "send.buffer.bytes",
        "session.timeout.ms",
        "share.acknowledgement.mode",
        "share.acquire.mode",
        "socket.connection.setup.timeout.max.ms",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.trustmanager.algorithm",
    ]
)

BYTES = "{what} are bytes here; turn them into something else with DataFrame operations"
JAVA_CLASS = "a Java class cannot run here"
# What would change the query's meaning: refused as Spark's own connector does, or because we would have to ignore it.
REFUSED: Mapping[str, str] = {
    f"{PREFIX}{name}": reason
    for name, reason in {
        "key.deserializer": BYTES.format(what="keys"),
        "value.deserializer": BYTES.format(what="values"),
        "key.serializer": BYTES.format(what="keys"),
        "value.serializer": BYTES.format(what="values"),
        "auto.offset.reset": "the query knows where to read; say where it starts with startingOffsets",
        "enable.auto.commit": "the checkpoint has the query's progress; kafka.group.id makes it report it",
        "interceptor.classes": JAVA_CLASS,
        "transactional.id": "each task has one of its own; ask for transactions with delivery=exactly-once",
        "transaction.two.phase.commit.enable": "tasks end their own transactions; see delivery=exactly-once",
        "partitioner.class": "keys are placed as Java's default does; a column named partition decides otherwise",
        "partitioner.ignore.keys": "keys are placed as Java's default does; leave the key out instead",
        "config.providers": "write the values themselves, or read them in Python",
        "sasl.login.class": JAVA_CLASS,
        "sasl.client.callback.handler.class": JAVA_CLASS,
        "sasl.oauthbearer.jwt.retriever.class": JAVA_CLASS,
        "sasl.oauthbearer.jwt.validator.class": JAVA_CLASS,
        "security.providers": JAVA_CLASS,
        "ssl.engine.factory.class": JAVA_CLASS,
        "ssl.provider": JAVA_CLASS,
        "ssl.secure.random.implementation": JAVA_CLASS,
        "ssl.cipher.suites": "OpenSSL has other names for them; restrict them on the broker",
        **{
            f"sasl.oauthbearer.assertion.{end}": "use a client id and secret, or a token file, instead"
            for end in [
                "algorithm",
                "claim.aud",
                "claim.exp.seconds",
                "claim.iss",
                "claim.jti.include",
                "claim.nbf.seconds",
                "claim.sub",
                "file",
                "private.key.file",
                "private.key.passphrase",
                "template.file",
            ]
        },
    }.items()
}


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Parsed settings by full name, and the names that had no effect."""

    values: Mapping[str, Value]
    without_effect: tuple[str, ...]

    def get(self, name: str) -> Value:
        """By Kafka's name; the default if it was not set."""
        full = f"{PREFIX}{name}"
        return self.values[full] if full in self.values else KAFKA[full].default

    def text(self, name: str) -> str:
        value = self.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        value = self.get(name)
        assert isinstance(value, int)
        return value

    def flag(self, name: str) -> bool:
        return self.get(name) is True

    def given(self, name: str) -> bool:
        return f"{PREFIX}{name}" in self.values


def read_kafka_settings(options: Mapping[str, str]) -> tuple[KafkaSettings, list[SettingError]]:
    """Sorts and parses settings whose names, in lower case, begin with `kafka.`."""
    values: dict[str, Value] = {}
    idle: list[str] = []
    problems: list[SettingError] = []
    for name, text in options.items():
        setting = KAFKA.get(name)
        if name in REFUSED:
            problems.append(SettingError(name, f"{name} cannot be set: {REFUSED[name]}"))
        elif name in WITHOUT_EFFECT:
            idle.append(name)
        elif setting is None:
            problems.append(_unknown(name))
        else:
            value = setting.parse(text)
            if isinstance(value, SettingError):
                problems.append(value)
            else:
                values[name] = value
    return KafkaSettings(values, tuple(sorted(idle))), problems


def _unknown(name: str) -> SettingError:
    near = nearest_setting(name)
    hint = f"; did you mean {near}?" if near else ""
    return SettingError(name, f"Kafka's clients have no setting {shortened(name)}{hint}")


def nearest_setting(name: str) -> str | None:
    """Compared without the prefix, which would make every name look like every other."""
    known = (*(setting.name for setting in KAFKA), *WITHOUT_EFFECT)
    near = nearest(name.removeprefix(PREFIX), (each.removeprefix(PREFIX) for each in known))
    return f"{PREFIX}{near}" if near else None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, whatever its capitals and separators."""
    import difflib  # only the unlucky pay for it

    bare = {each.lower().replace("_", ".").replace("-", "."): each for each in known}
    wanted = shortened(name.strip().lower().replace("_", ".").replace("-", "."))
    found = difflib.get_close_matches(wanted, bare, n=1, cutoff=0.6)
    return bare[found[0]] if found else None
