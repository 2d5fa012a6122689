"""`kafka.*` settings: those of Java's clients that are used, have no effect, or are refused.

Every setting of Kafka's consumer and producer is in one of the tables, so that a misspelled one is detected. A setting
that would change what is read, written or trusted, and is not supported, is refused and never silently dropped.
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
    _text("bootstrap.servers", "Brokers to connect to first, as host:port separated by commas."),
    _text("client.id", "Name of this client in the broker's logs and quotas.", "moldau-spark"),
    _text("client.rack", "Rack of this client, to fetch from the closest replica.", ""),
    _choice("security.protocol", PROTOCOLS, "PLAINTEXT", "Protocol of the connection."),
    _number("request.timeout.ms", 30_000, "Maximum wait for a response.", least=1),
    _number("socket.connection.setup.timeout.ms", 10_000, "Maximum wait for a connection.", least=1),
    _number("retry.backoff.ms", 100, "First backoff before a retry."),
    _number("retry.backoff.max.ms", 1_000, "Maximum backoff before a retry."),
)
READING = (
    _number(
        "default.api.timeout.ms",
        60_000,
        "How long a stream that runs waits for offsets of a broker that is away, times 1 + fetchOffset.numRetries.",
        least=1,
    ),
    _text("group.id", "Group for which progress is committed; queries with the same group do not share partitions."),
    _choice(
        "isolation.level",
        ("read_uncommitted", "read_committed"),
        "read_uncommitted",
        "Whether to read records of open and aborted transactions.",
    ),
    _number("fetch.min.bytes", 1, "Minimum bytes of a fetch response."),
    _number("fetch.max.bytes", 50 * 2**20, "Approximate maximum bytes of a fetch response.", least=1024),
    _number("max.partition.fetch.bytes", 4 * 2**20, "Approximate maximum bytes per partition."),
    _number("fetch.max.wait.ms", 500, "Maximum wait of the broker for fetch.min.bytes."),
    Setting(f"{PREFIX}check.crcs", Kind.BOOL, True, doc="Whether to verify the checksum of each batch."),
)
WRITING = (
    _choice("acks", ("all", "-1", "0", "1"), "all", "Replicas that must have a batch before it is acknowledged."),
    _choice("compression.type", CODECS, "none", "Compression codec of batches."),
    _number("batch.size", 512 * 1024, "Maximum bytes of a batch before compression."),
    _number("max.request.size", 2**20, "Maximum bytes of a request, and so of a record."),
    _number("delivery.timeout.ms", 120_000, "Maximum time to deliver a batch, with all retries."),
    _number("transaction.timeout.ms", 900_000, "The broker aborts a transaction that is open for longer.", least=1),
    Setting(f"{PREFIX}enable.idempotence", Kind.BOOL, True, doc="Whether the broker detects duplicate batches."),
)
SECURITY = (
    _choice("sasl.mechanism", MECHANISMS, None, "SASL mechanism."),
    _secret("sasl.jaas.config", "Login module with its options, as in a Java client."),
    _text("sasl.username", "User name, without sasl.jaas.config."),
    _secret("sasl.password", "Password, without sasl.jaas.config."),
    _text("sasl.login.callback.handler.class", "Kafka's own OAuthBearerLoginCallbackHandler, or none."),
    _text("sasl.oauthbearer.token.endpoint.url", "Token endpoint (https:), or a token file (file:)."),
    _text("sasl.oauthbearer.client.credentials.client.id", "Client id for the token endpoint."),
    _secret("sasl.oauthbearer.client.credentials.client.secret", "Client secret for the token endpoint."),
    _text("sasl.oauthbearer.scope", "Scope of the token."),
    _text("ssl.truststore.type", "PEM."),
    _text("ssl.truststore.location", "PEM file with the trusted certificates."),
    _secret("ssl.truststore.certificates", "Trusted certificates as PEM text."),
    _secret("ssl.truststore.password", "Not used with PEM."),
    _text("ssl.keystore.type", "PEM."),
    _text("ssl.keystore.location", "PEM file with this client's key and certificates."),
    _secret("ssl.keystore.certificate.chain", "This client's certificates as PEM text."),
    _secret("ssl.keystore.key", "This client's key as PEM text."),
    _secret("ssl.keystore.password", "Not used with PEM."),
    _secret("ssl.key.password", "Password of the key."),
    _text("ssl.ca.location", "Same as ssl.truststore.location with PEM."),
    _text("ssl.certificate.location", "PEM file with this client's certificates."),
    _text("ssl.key.location", "PEM file with this client's key."),
    _choice(
        "ssl.endpoint.identification.algorithm",
        ("https", ""),
        "https",
        "https: verify the host name of the certificate; empty: do not.",
    ),
    Setting(
        f"{PREFIX}ssl.enabled.protocols",
        Kind.LIST,
        ("TLSv1.2", "TLSv1.3"),
        choices=("TLSv1.2", "TLSv1.3"),
        doc="TLS versions to offer.",
    ),
)
KAFKA = Table("Kafka", (*CONNECTION, *READING, *WRITING, *SECURITY))

# Tuning of Java's client and of group membership, which Spark's source does not use either: accepted, no effect.
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

BYTES = "{what} are bytes here; convert them with DataFrame operations"
JAVA_CLASS = "a Java class cannot run here"
# Would change the meaning of the query: refused, as by Spark's connector or because it is not supported.
REFUSED: Mapping[str, str] = {
    f"{PREFIX}{name}": reason
    for name, reason in {
        "key.deserializer": BYTES.format(what="keys"),
        "value.deserializer": BYTES.format(what="values"),
        "key.serializer": BYTES.format(what="keys"),
        "value.serializer": BYTES.format(what="values"),
        "auto.offset.reset": "the query tracks its offsets itself; set the start with startingOffsets",
        "enable.auto.commit": "the checkpoint holds the query's progress; kafka.group.id makes it commit a copy",
        "interceptor.classes": JAVA_CLASS,
        "transactional.id": "each task has its own; use transactions with delivery=exactly-once",
        "transaction.two.phase.commit.enable": "tasks end their own transactions; see delivery=exactly-once",
        "partitioner.class": "keys are partitioned as by Java's default; override it with a column named partition",
        "partitioner.ignore.keys": "keys are partitioned as by Java's default; leave out the key instead",
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
    """Parsed settings by full name, and the names of those without effect."""

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
    """Parse settings with lower-case names that begin with `kafka.`."""
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
    """Compare without the prefix, which would make all names similar."""
    known = (*(setting.name for setting in KAFKA), *WITHOUT_EFFECT)
    near = nearest(name.removeprefix(PREFIX), (each.removeprefix(PREFIX) for each in known))
    return f"{PREFIX}{near}" if near else None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar known name, ignoring case and separators."""
    import difflib  # needed for errors only

    bare = {each.lower().replace("_", ".").replace("-", "."): each for each in known}
    wanted = shortened(name.strip().lower().replace("_", ".").replace("-", "."))
    found = difflib.get_close_matches(wanted, bare, n=1, cutoff=0.6)
    return bare[found[0]] if found else None
