"""Broker settings of TLS that are used here, for clients, between brokers and to ZooKeeper."""

from moldau.base.settings import Kind, Live, Setting

BOOL, LIST, PASSWORD, STRING = Kind.BOOL, Kind.LIST, Kind.PASSWORD, Kind.STRING
PER_BROKER = Live.PER_BROKER

# fmt: off
TLS: tuple[Setting, ...] = (
    Setting("ssl.allow.dn.changes", BOOL, False,
            doc="Accept a reloaded certificate with another distinguished name."),
    Setting("ssl.allow.san.changes", BOOL, False,
            doc="Accept a reloaded certificate with other subject alternative names."),
    Setting("ssl.cipher.suites", LIST, (), live=PER_BROKER,
            doc="Allowed cipher suites of TLS 1.2, by their IANA or OpenSSL names. Those of TLS 1.3 are all allowed."),
    Setting("ssl.client.auth", STRING, "none", choices=("required", "requested", "none"), live=PER_BROKER,
            doc="Whether clients need a certificate. On SASL_SSL listeners only with the prefix of the listener."),
    Setting("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), live=PER_BROKER,
            doc="Allowed versions of TLS: TLSv1.2, TLSv1.3."),
    Setting("ssl.endpoint.identification.algorithm", STRING, "https", live=PER_BROKER,
            doc="Check of another broker's host name against its certificate: https, or nothing for none."),
    Setting("ssl.key.password", PASSWORD, live=PER_BROKER, doc="Password of the private key."),
    Setting("ssl.keystore.certificate.chain", PASSWORD, live=PER_BROKER, doc="Certificate chain as PEM text."),
    Setting("ssl.keystore.key", PASSWORD, live=PER_BROKER, doc="Private key as PEM text."),
    Setting("ssl.keystore.location", STRING, live=PER_BROKER,
            doc="File with the private key and its certificates; a changed file is read again."),
    Setting("ssl.keystore.password", PASSWORD, live=PER_BROKER, doc="Password of the key store."),
    Setting("ssl.keystore.type", STRING, "JKS", live=PER_BROKER,
            doc="Format of the key store: PEM or PKCS12; a PKCS#12 file also opens as JKS. Java's own is not read."),
    Setting("ssl.principal.mapping.rules", STRING, "DEFAULT",
            doc="Rules for mapping a distinguished name to a user name."),
    Setting("ssl.truststore.certificates", PASSWORD, live=PER_BROKER, doc="Trusted certificates as PEM text."),
    Setting("ssl.truststore.location", STRING, live=PER_BROKER,
            doc="File with trusted certificates; without it, those of the operating system."),
    Setting("ssl.truststore.password", PASSWORD, live=PER_BROKER, doc="Password of the trust store."),
    Setting("ssl.truststore.type", STRING, "JKS", live=PER_BROKER,
            doc="Format of the trust store: PEM or PKCS12; a PKCS#12 file also opens as JKS. Java's own is not read."),
    Setting("zookeeper.clientCnxnSocket", STRING,
            doc="Java class for connections to ZooKeeper, which TLS needs in Kafka 3 and not here."),
    Setting("zookeeper.ssl.cipher.suites", LIST, doc="Allowed cipher suites of TLS 1.2 to ZooKeeper."),
    Setting("zookeeper.ssl.client.enable", BOOL, False, doc="Connect to ZooKeeper with TLS, to its secureClientPort."),
    Setting("zookeeper.ssl.enabled.protocols", LIST, doc="Allowed versions of TLS to ZooKeeper; without it, all."),
    Setting("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS",
            doc="Check of ZooKeeper's host name against its certificate: HTTPS, or nothing for none."),
    Setting("zookeeper.ssl.keystore.location", STRING,
            doc="File with the private key and certificates for connections to ZooKeeper."),
    Setting("zookeeper.ssl.keystore.password", PASSWORD,
            doc="Password of the key store for ZooKeeper; of the key, if the store is PEM."),
    Setting("zookeeper.ssl.keystore.type", STRING, doc="PEM or PKCS12; without it, by the end of the file's name."),
    Setting("zookeeper.ssl.truststore.location", STRING, doc="File with the certificates that ZooKeeper may show."),
    Setting("zookeeper.ssl.truststore.password", PASSWORD, doc="Password of the trust store for ZooKeeper."),
    Setting("zookeeper.ssl.truststore.type", STRING, doc="PEM or PKCS12; without it, by the end of the file's name."),
)
# fmt: on
