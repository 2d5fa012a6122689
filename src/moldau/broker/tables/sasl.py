"""Broker settings of SASL and delegation tokens. A listener may have its own values of all but those of tokens."""

from moldau.base.settings import Kind, Live, Setting

BOOL, INT, LIST, LONG, PASSWORD, STRING = Kind.BOOL, Kind.INT, Kind.LIST, Kind.LONG, Kind.PASSWORD, Kind.STRING
PER_BROKER = Live.PER_BROKER

# fmt: off
SASL: tuple[Setting, ...] = (
    Setting("connection.failed.authentication.delay.ms", INT, 100, least=0,
            doc="Delay of the response to a failed login, and of the end of its connection."),
    Setting("connections.max.reauth.ms", LONG, 0,
            doc="Longest time between two authentications of a connection; 0 for no limit."),
    Setting("sasl.enabled.mechanisms", LIST, ("GSSAPI",), live=PER_BROKER,
            doc="SASL mechanisms for clients: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER."),
    Setting("sasl.jaas.config", PASSWORD, live=PER_BROKER,
            doc="In JAAS format: users of PLAIN as user_NAME, and username and password of this broker."),
    Setting("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", live=PER_BROKER,
            doc="SASL mechanism between brokers."),
    Setting("sasl.oauthbearer.clock.skew.seconds", INT, 30,
            doc="Tolerated clock difference when OAuth tokens are validated."),
    Setting("sasl.oauthbearer.expected.audience", LIST, (), doc="Accepted audiences of OAuth tokens."),
    Setting("sasl.oauthbearer.expected.issuer", STRING, doc="Required issuer of OAuth tokens."),
    Setting("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000,
            doc="How often the OAuth provider's keys are fetched."),
    Setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000,
            doc="Longest pause between two attempts to fetch the OAuth provider's keys."),
    Setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100,
            doc="First pause between two attempts to fetch the OAuth provider's keys."),
    Setting("sasl.oauthbearer.jwks.endpoint.url", STRING,
            doc="The OAuth provider's keys (JWKS): file:, https: or http: URL."),
    Setting("sasl.oauthbearer.organisation.claim.name", STRING, "", hidden=True,
            doc="Claim with the organisation of an OAuth token: its subject is then the user ORGANISATION/SUBJECT."),
    Setting("sasl.oauthbearer.scope.claim.name", STRING, "scope",
            doc="Claim with the scope of an OAuth token."),
    Setting("sasl.oauthbearer.sub.claim.name", STRING, "sub",
            doc="Claim with the subject of an OAuth token."),
    Setting("sasl.oauthbearer.unsafe.accept.unsigned.tokens.from.anyone", BOOL, False, hidden=True,
            doc="Accept OAuth tokens that nobody signed: every client is the user that it says it is. For tests only."),
    Setting("sasl.server.max.receive.size", INT, 524_288, doc="Largest request before a connection is authenticated."),
    Setting("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, least=1,
            doc="How often expired delegation tokens are removed."),
    Setting("delegation.token.expiry.time.ms", LONG, 86_400_000, least=1,
            doc="Lifetime of a delegation token until its next renewal."),
    Setting("delegation.token.max.lifetime.ms", LONG, 604_800_000, least=1,
            doc="Longest lifetime of a delegation token, with renewals."),
    Setting("delegation.token.secret.key", PASSWORD,
            doc="Secret key of delegation tokens, the same on all brokers; without it there are none."),
)
# fmt: on
