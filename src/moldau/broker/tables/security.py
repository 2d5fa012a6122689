"""Broker settings of security and Java plugins: those of authorization, and those not supported yet."""

from moldau.base.settings import Group, Kind, Live, Setting

BOOL, CLASS, DOUBLE, INT, LIST = Kind.BOOL, Kind.CLASS, Kind.DOUBLE, Kind.INT, Kind.LIST
LONG, PASSWORD, SHORT, STRING = Kind.LONG, Kind.PASSWORD, Kind.SHORT, Kind.STRING
PER_BROKER, CLUSTER_WIDE = Live.PER_BROKER, Live.CLUSTER_WIDE

# Kafka's own classes: both mean the authorizer here.
AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

# fmt: off
AUTHORIZATION: tuple[Setting, ...] = (
    Setting("allow.everyone.if.no.acl.found", BOOL, False,
            doc="With an authorizer: allow everything on a resource that no ACL is about."),
    Setting("authorizer.class.name", STRING, "",
            doc="One of Kafka's classes for ACLs, `org.apache.kafka.metadata.authorizer.StandardAuthorizer` or "
                "`kafka.security.authorizer.AclAuthorizer`: both mean Moldau's own authorizer."),
    Setting("principal.builder.class", CLASS, PRINCIPAL_BUILDER, choices=(PRINCIPAL_BUILDER,), live=PER_BROKER,
            doc="Kafka's class that determines the principal of a connection: the user of SASL, or User:ANONYMOUS."),
    Setting("super.users", STRING, "",
            doc="Principals that may do everything, whatever ACLs say, as User:name separated by semicolons."),
)

AUDIT: tuple[Setting, ...] = (
    Setting("moldau.audit.enable", BOOL, False,
            doc="Write administrative actions, denials and failed logins to the internal topic `__audit`."),
    Setting("moldau.audit.max.records.per.second", INT, 100, least=1,
            doc="Administrative actions per second that a broker records, and as many denials and failed logins. "
                "Others are counted."),
    Setting("moldau.audit.topic.replication.factor", SHORT, 3, least=1,
            doc="Replicas of `__audit` when it is created; fewer if there are fewer brokers."),
)

SECURITY: tuple[Group, ...] = (
    Group("TLS", (
        Setting("ssl.engine.factory.class", CLASS, live=PER_BROKER, doc="Java class that creates TLS engines."),
    )),
    Group("Kerberos, Java's login classes and OAuth logins of brokers", (
        Setting("sasl.client.callback.handler.class", CLASS,
                doc="Java class that supplies credentials to SASL clients."),
        Setting("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", live=PER_BROKER, doc="Path of the kinit command."),
        Setting("sasl.kerberos.min.time.before.relogin", LONG, 60000, live=PER_BROKER,
                doc="Shortest time between two Kerberos logins."),
        Setting("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), live=PER_BROKER,
                doc="Rules for mapping a Kerberos principal to a user name."),
        Setting("sasl.kerberos.service.name", STRING, live=PER_BROKER, doc="Kerberos service name of the brokers."),
        Setting("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, live=PER_BROKER,
                doc="Random part of the time until a Kerberos ticket is renewed."),
        Setting("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, live=PER_BROKER,
                doc="Share of a Kerberos ticket's lifetime after which it is renewed."),
        Setting("sasl.login.callback.handler.class", CLASS,
                doc="Java class that supplies credentials for SASL logins."),
        Setting("sasl.login.class", CLASS, doc="Java class that implements SASL logins."),
        Setting("sasl.login.connect.timeout.ms", INT,
                doc="How long to wait for a connection to the identity provider."),
        Setting("sasl.login.read.timeout.ms", INT, doc="How long to wait for a response of the identity provider."),
        Setting("sasl.login.refresh.buffer.seconds", SHORT, 300, live=PER_BROKER,
                doc="Time before its expiration when a credential is refreshed."),
        Setting("sasl.login.refresh.min.period.seconds", SHORT, 60, live=PER_BROKER,
                doc="Shortest time between two refreshes of a credential."),
        Setting("sasl.login.refresh.window.factor", DOUBLE, 0.8, live=PER_BROKER,
                doc="Share of a credential's lifetime after which it is refreshed."),
        Setting("sasl.login.refresh.window.jitter", DOUBLE, 0.05, live=PER_BROKER,
                doc="Random part of the time until a credential is refreshed."),
        Setting("sasl.login.retry.backoff.max.ms", LONG, 10000, doc="Longest pause between two login attempts."),
        Setting("sasl.login.retry.backoff.ms", LONG, 100, doc="First pause between two login attempts."),
        Setting("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", choices=("ES256", "RS256"), any_case=True,
                doc="Signature algorithm of OAuth assertions."),
        Setting("sasl.oauthbearer.assertion.claim.aud", STRING, doc="Audience claim of OAuth assertions."),
        Setting("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, least=0, most=86400,
                doc="Lifetime of OAuth assertions."),
        Setting("sasl.oauthbearer.assertion.claim.iss", STRING, doc="Issuer claim of OAuth assertions."),
        Setting("sasl.oauthbearer.assertion.claim.jti.include", BOOL, False, doc="Include an id in OAuth assertions."),
        Setting("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, least=0, most=3600,
                doc="How long before its creation an OAuth assertion is valid."),
        Setting("sasl.oauthbearer.assertion.claim.sub", STRING, doc="Subject claim of OAuth assertions."),
        Setting("sasl.oauthbearer.assertion.file", STRING, doc="File with a prepared OAuth assertion."),
        Setting("sasl.oauthbearer.assertion.private.key.file", STRING,
                doc="File with the private key for signing OAuth assertions."),
        Setting("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD,
                doc="Password of the private key for OAuth assertions."),
        Setting("sasl.oauthbearer.assertion.template.file", STRING,
                doc="File with more claims for OAuth assertions."),
        Setting("sasl.oauthbearer.client.credentials.client.id", STRING, doc="Client id for OAuth."),
        Setting("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, doc="Client secret for OAuth."),
        Setting("sasl.oauthbearer.jwt.retriever.class", CLASS,
                "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
                doc="Java class that gets OAuth tokens."),
        Setting("sasl.oauthbearer.jwt.validator.class", CLASS,
                "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
                doc="Java class that validates OAuth tokens."),
        Setting("sasl.oauthbearer.scope", STRING, doc="Requested OAuth scope."),
        Setting("sasl.oauthbearer.token.endpoint.url", STRING, doc="URL of the OAuth provider's token endpoint."),
        Setting("sasl.server.callback.handler.class", CLASS, doc="Java class that verifies SASL credentials."),
        Setting("security.providers", STRING, doc="Java classes that add security algorithms."),
    )),
    Group("quotas", (
        Setting("client.quota.callback.class", CLASS, doc="Java class that sets client quotas."),
    )),
    Group("policies", (
        Setting("alter.config.policy.class.name", CLASS, doc="Java class that validates changes of settings."),
        Setting("create.topic.policy.class.name", CLASS, doc="Java class that validates new topics."),
    )),
)
# fmt: on

UNPROTECTED = "Moldau would run without protection"
UNCHECKED = "Moldau runs no Java classes, so nothing would be checked"

# Refused if not the default, because users would rely on them: setting → what would happen otherwise.
SECURITY_GUARDS = {
    "alter.config.policy.class.name": UNCHECKED,
    "client.quota.callback.class": "clients would run without quotas",
    "create.topic.policy.class.name": UNCHECKED,
    "sasl.server.callback.handler.class": UNPROTECTED,
    "ssl.engine.factory.class": UNPROTECTED,
}
