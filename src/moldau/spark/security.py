"""Security settings: from the `ssl.*` and `sasl.*` settings of a Java client to the values of `client.direct`.

Opens no file and no connection. Java key stores are refused, with the command that converts them to PEM.
"""

from moldau.base.settings import SettingError
from moldau.client.direct.security import Security, Tls
from moldau.security.jaas import Login, read_jaas
from moldau.security.sasl_client import Sasl
from moldau.spark.kafka_settings import KafkaSettings
from moldau.spark.tokens import TokenSource

MODULE_OF = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
OAUTH_HANDLER = "OAuthBearerLoginCallbackHandler"
UNSIGNED = "unsecuredLogin"
UNSIGNED_CLAIM = "unsecuredLoginStringClaim_"
PEM_ENDINGS = (".pem", ".crt", ".cer", ".key")
TO_PEM = {  # by what the store is for and its type
    ("truststore", "JKS"): "keytool -list -rfc -keystore {file} > ca.pem",
    ("truststore", "PKCS12"): "openssl pkcs12 -in {file} -nokeys -out ca.pem",
    ("keystore", "JKS"): (
        "keytool -importkeystore -srckeystore {file} -destkeystore client.p12 -deststoretype PKCS12"
        " && openssl pkcs12 -in client.p12 -out client.pem"
    ),
    ("keystore", "PKCS12"): "openssl pkcs12 -in {file} -out client.pem",
}


def read_security(kafka: KafkaSettings) -> tuple[Security, list[SettingError]]:
    """The security settings, and all problems with them."""
    protocol = kafka.text("security.protocol").upper()
    problems: list[SettingError] = []
    tls = _read_tls(kafka, problems) if protocol.endswith("SSL") else None
    sasl = _read_sasl(kafka, problems) if protocol.startswith("SASL") else None
    problems += _left_over(kafka, "ssl.", tls is None, "SSL or SASL_SSL")
    problems += _left_over(kafka, "sasl.", not protocol.startswith("SASL"), "SASL_SSL or SASL_PLAINTEXT")
    return Security(tls, sasl), problems


def _left_over(kafka: KafkaSettings, prefix: str, unused: bool, wanted: str) -> list[SettingError]:
    """Settings of an unused protocol: half a configuration must not become an unprotected connection."""
    full = f"kafka.{prefix}"
    protocol = kafka.text("security.protocol").upper()
    return [
        SettingError(name, f"{name} has no effect with kafka.security.protocol={protocol}; set that to {wanted}")
        for name in sorted(kafka.values)
        if unused and name.startswith(full)
    ]


def _wrong(name: str, sentence: str) -> SettingError:
    return SettingError(f"kafka.{name}", f"kafka.{name} {sentence}")


def _read_tls(kafka: KafkaSettings, problems: list[SettingError]) -> Tls:
    trusted = _read_store(kafka, "truststore", problems)
    store = _read_store(kafka, "keystore", problems)
    trusted = _one_of(kafka, "ssl.ca.location", "ssl.truststore.certificates", trusted, problems)
    certificate = _one_of(kafka, "ssl.certificate.location", "ssl.keystore.certificate.chain", store, problems)
    key = _one_of(kafka, "ssl.key.location", "ssl.keystore.key", store, problems)
    if (certificate is None) != (key is None):
        has, lacks = ("certificate", "key") if key is None else ("key", "certificate")
        problems.append(
            _wrong(f"ssl.{lacks}.location", f"is missing: a {has} of this client is set, but no {lacks} to go with it")
        )
    versions = kafka.get("ssl.enabled.protocols")
    if not versions:
        problems.append(_wrong("ssl.enabled.protocols", "must be a list of: TLSv1.2, TLSv1.3, got ''"))
    elif isinstance(versions, tuple) and "TLSv1.2" not in versions:
        problems.append(_wrong("ssl.enabled.protocols", "cannot leave TLSv1.2 out; do so on the broker"))
    return Tls(
        trusted,
        certificate,
        key,
        kafka.text("ssl.key.password") or None,
        check_host_name=bool(kafka.text("ssl.endpoint.identification.algorithm")),
    )


def _read_store(kafka: KafkaSettings, store: str, problems: list[SettingError]) -> str | None:
    """A Java `*.location`: used if it is PEM, else refused with the conversion command."""
    file = kafka.text(f"ssl.{store}.location")
    default = "PEM" if not file or file.lower().endswith(PEM_ENDINGS) else "JKS"
    if file.lower().endswith((".p12", ".pfx")):
        default = "PKCS12"
    kind = kafka.text(f"ssl.{store}.type").upper() or default
    if kind != "PEM":
        command = TO_PEM.get((store, kind), TO_PEM[store, "JKS"]).format(file=file or "FILE")
        made = "ca.pem" if store == "truststore" else "client.pem"
        problems.append(
            _wrong(
                f"ssl.{store}.{'location' if file else 'type'}",
                f"is of type {kind}, which only Java reads. Convert it to PEM with: {command}; then set "
                f"kafka.ssl.{store}.type=PEM and kafka.ssl.{store}.location={made}",
            )
        )
        return None
    if kafka.given(f"ssl.{store}.password"):
        problems.append(
            _wrong(f"ssl.{store}.password", "is not for PEM; the key's own password is kafka.ssl.key.password")
        )
    return file or None


def _one_of(
    kafka: KafkaSettings, file_name: str, text_name: str, store: str | None, problems: list[SettingError]
) -> str | None:
    """One value that can be given as a file, as text, or in a store's file."""
    file, text = kafka.text(file_name), kafka.text(text_name)
    if sum(map(bool, (file, text, store))) > 1:
        problems.append(
            _wrong(
                file_name if file else text_name,
                "conflicts with another setting for the same value; remove one of them",
            )
        )
    if text and "-----BEGIN" not in text:
        problems.append(
            _wrong(text_name, "must be PEM, beginning with -----BEGIN; for a file use " + f"kafka.{file_name}")
        )
    return file or text or store


def _read_sasl(kafka: KafkaSettings, problems: list[SettingError]) -> Sasl | None:
    mechanism = kafka.text("sasl.mechanism").upper()
    if not mechanism:
        problems.append(
            _wrong(
                "sasl.mechanism",
                f"must be one of {', '.join(MODULE_OF)}; Kafka's default, Kerberos (GSSAPI), is not supported",
            )
        )
        return None
    login = _read_login(kafka, mechanism, problems)
    handler = kafka.text("sasl.login.callback.handler.class").rpartition(".")[2]
    if handler and (handler != OAUTH_HANDLER or mechanism != "OAUTHBEARER"):
        problems.append(
            _wrong("sasl.login.callback.handler.class", f"can only be Kafka's {OAUTH_HANDLER}, with OAUTHBEARER")
        )
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, token=_read_oauth(kafka, login, problems))
    return _read_password(kafka, mechanism, login, problems)


def _read_login(kafka: KafkaSettings, mechanism: str, problems: list[SettingError]) -> Login | None:
    text = kafka.text("sasl.jaas.config")
    if not text:
        return None
    login = read_jaas(text)
    if isinstance(login, str):
        problems.append(_wrong("sasl.jaas.config", f"must {login}"))
        return None
    if login.module != MODULE_OF[mechanism]:
        problems.append(
            _wrong("sasl.jaas.config", f"must have a {MODULE_OF[mechanism]} for {mechanism}, not a {login.module}")
        )
        return None
    return login


def _read_password(
    kafka: KafkaSettings, mechanism: str, login: Login | None, problems: list[SettingError]
) -> Sasl | None:
    options = login.options if login else {}
    if options.get("tokenauth", "").lower() == "true":
        problems.append(_wrong("sasl.jaas.config", "has tokenauth: delegation tokens are not supported"))
    given = [name for name in ("username", "password") if kafka.given(f"sasl.{name}")]
    if login and given:
        problems.append(_wrong(f"sasl.{given[0]}", "is also in kafka.sasl.jaas.config; remove one of them"))
    username = options.get("username") or kafka.text("sasl.username")
    password = options.get("password") or kafka.text("sasl.password")
    if username and password:
        return Sasl(mechanism, username, password)
    lacks = "password" if username else "username"
    if login:
        problems.append(_wrong("sasl.jaas.config", f"must give a {lacks}"))
    elif not kafka.given("sasl.jaas.config"):
        problems.append(_wrong(f"sasl.{lacks}", f"is missing for {mechanism}; or give both in kafka.sasl.jaas.config"))
    return None


def _read_oauth(kafka: KafkaSettings, login: Login | None, problems: list[SettingError]) -> TokenSource:
    options = login.options if login else {}
    credentials = "sasl.oauthbearer.client.credentials.client"
    found = TokenSource(
        endpoint=kafka.text("sasl.oauthbearer.token.endpoint.url"),
        client_id=kafka.text(f"{credentials}.id") or options.get("clientId", ""),
        client_secret=kafka.text(f"{credentials}.secret") or options.get("clientSecret", ""),
        scope=kafka.text("sasl.oauthbearer.scope") or options.get("scope", ""),
        unsigned_claims={
            name.removeprefix(UNSIGNED_CLAIM): value
            for name, value in options.items()
            if name.startswith(UNSIGNED_CLAIM)
        },
    )
    problems += [
        _wrong("sasl.jaas.config", f"has {name}: for unsigned tokens only {UNSIGNED_CLAIM}* is supported")
        for name in sorted(options)
        if name.startswith(UNSIGNED) and not name.startswith(UNSIGNED_CLAIM)
    ]
    scheme = found.endpoint.partition(":")[0].lower()
    if found.endpoint and scheme not in ("https", "http", "file"):
        problems.append(_wrong("sasl.oauthbearer.token.endpoint.url", "must begin with https:, http: or file:"))
    if scheme in ("https", "http") and not (found.client_id and found.client_secret):
        lacks = "secret" if found.client_id else "id"
        problems.append(_wrong(f"{credentials}.{lacks}", "is missing, and in kafka.sasl.jaas.config too"))
    if found.endpoint and found.unsigned_claims:
        problems.append(
            _wrong("sasl.jaas.config", "has unsigned claims, and a token endpoint is set; remove one of them")
        )
    if not found.endpoint and "sub" not in found.unsigned_claims:
        problems.append(_wrong("sasl.oauthbearer.token.endpoint.url", "must be set: it is where tokens come from"))
    return found
