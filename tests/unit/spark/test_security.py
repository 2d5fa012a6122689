"""`kafka.*` settings as Java users write them: translated, taken, or refused with what to write instead."""

import pytest

from moldau.base.settings import SettingError
from moldau.client.direct.security import Security, Tls
from moldau.security.jaas import Login, read_jaas
from moldau.security.sasl_client import Sasl
from moldau.spark.kafka_settings import KAFKA, REFUSED, WITHOUT_EFFECT, read_kafka_settings
from moldau.spark.security import read_security
from moldau.spark.tokens import TokenSource

PACKAGE = "org.apache.kafka.common.security"
PLAIN = f'{PACKAGE}.plain.PlainLoginModule required username="ann" password="s3;cr\\"et=";'
SCRAM = f"{PACKAGE}.scram.ScramLoginModule required username='bob' password='pw';"
OAUTH = f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required"


def security(**more: str) -> tuple[Security, list[SettingError]]:
    names = {f"kafka.{name.replace('__', '-').replace('_', '.')}": text for name, text in more.items()}
    kafka, problems = read_kafka_settings(names)
    found, wrong = read_security(kafka)
    return found, problems + wrong


def accepted(**more: str) -> Security:
    found, problems = security(**more)
    assert not problems
    return found


def said(**more: str) -> str:
    return "\n".join(problem.message for problem in security(**more)[1])


def test_plain_text_is_the_default() -> None:
    assert accepted() == Security(None, None)


def test_java_logins_are_translated() -> None:
    plain = accepted(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=PLAIN)
    assert plain == Security(Tls(), Sasl("PLAIN", "ann", 's3;cr"et='))
    scram = accepted(security_protocol="sasl_plaintext", sasl_mechanism="scram-sha-512", sasl_jaas_config=SCRAM)
    assert scram == Security(None, Sasl("SCRAM-SHA-512", "bob", "pw"))
    shaded = accepted(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=f"kafkashaded.{PLAIN}"
    )  # as some vendors of Spark ask for
    assert shaded == plain


def test_a_login_without_jaas() -> None:
    found = accepted(
        security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_username="ann", sasl_password="pw"
    )
    assert found.sasl == Sasl("SCRAM-SHA-256", "ann", "pw")


def test_secrets_are_not_shown() -> None:
    found = accepted(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=PLAIN, ssl_key_password="hidden"
    )
    assert "s3" not in repr(found)
    assert "hidden" not in repr(found)
    wrong = said(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config="password=hidden")
    assert wrong
    assert "hidden" not in wrong


def test_bearer_tokens() -> None:
    asked = accepted(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=f'{OAUTH} clientId="id" clientSecret="secret" scope="all";',
        sasl_oauthbearer_token_endpoint_url="https://login.example/token",
        sasl_login_callback_handler_class=f"{PACKAGE}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    )
    assert asked.sasl == Sasl("OAUTHBEARER", token=TokenSource("https://login.example/token", "id", "secret", "all"))
    file = accepted(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=f"{OAUTH};",
        sasl_oauthbearer_token_endpoint_url="file:///run/token",
    )
    assert file.sasl == Sasl("OAUTHBEARER", token=TokenSource("file:///run/token"))
    unsigned = accepted(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=f'{OAUTH} unsecuredLoginStringClaim_sub="ann";',
    )
    assert unsigned.sasl == Sasl("OAUTHBEARER", token=TokenSource(unsigned_claims={"sub": "ann"}))


def test_pem_is_used() -> None:
    files = accepted(
        security_protocol="SSL",
        ssl_truststore_type="pem",
        ssl_truststore_location="/ca.txt",
        ssl_keystore_location="/client.pem",
        ssl_key_password="pw",
        ssl_endpoint_identification_algorithm="",
        ssl_enabled_protocols="TLSv1.3,TLSv1.2",
    )
    assert files.tls == Tls("/ca.txt", "/client.pem", "/client.pem", "pw", check_host_name=False)
    begin = "-----BEGIN CERTIFICATE-----"
    texts = accepted(
        security_protocol="SSL",
        ssl_truststore_certificates=begin,
        ssl_keystore_certificate_chain=begin,
        ssl_keystore_key="-----BEGIN PRIVATE KEY-----",
    )
    assert texts.tls == Tls(begin, begin, "-----BEGIN PRIVATE KEY-----")
    split = accepted(
        security_protocol="SSL", ssl_ca_location="/ca", ssl_certificate_location="/cert", ssl_key_location="/key"
    )
    assert split.tls == Tls("/ca", "/cert", "/key")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"truststore_location": "/t.jks"},
            "keytool -list -rfc -keystore /t.jks > ca.pem; then set kafka.ssl.truststore",
        ),
        ({"truststore_location": "/t.p12"}, "openssl pkcs12 -in /t.p12 -nokeys -out ca.pem"),
        ({"truststore_location": "/t", "truststore_type": "PKCS12"}, "is of type PKCS12, which only Java reads"),
        ({"truststore_location": "/t"}, "kafka.ssl.truststore.location is of type JKS, which only Java reads"),
        ({"keystore_location": "/k.jks"}, "keytool -importkeystore -srckeystore /k.jks -destkeystore client.p12"),
        (
            {"keystore_location": "/k.pfx"},
            "openssl pkcs12 -in /k.pfx -out client.pem; then set kafka.ssl.keystore.type=PEM",
        ),
        ({"keystore_type": "BCFKS"}, "kafka.ssl.keystore.type is of type BCFKS, which only Java reads"),
        ({"truststore_location": "/a.pem", "truststore_password": "x"}, "kafka.ssl.truststore.password is not for PEM"),
        (
            {"truststore_location": "/a.pem", "ca_location": "/b.pem"},
            "kafka.ssl.ca.location conflicts with another setting",
        ),
        ({"certificate_location": "/c"}, "kafka.ssl.key.location is missing"),
        ({"key_location": "/k"}, "kafka.ssl.certificate.location is missing"),
        ({"truststore_certificates": "/ca.pem"}, "kafka.ssl.truststore.certificates must be PEM, beginning with"),
        ({"enabled_protocols": "TLSv1"}, "kafka.ssl.enabled.protocols must be a list of: TLSv1.2, TLSv1.3"),
        ({"enabled_protocols": "TLSv1.3"}, "kafka.ssl.enabled.protocols cannot leave TLSv1.2 out"),
        ({"enabled_protocols": ""}, "kafka.ssl.enabled.protocols must be a list of: TLSv1.2, TLSv1.3"),
        ({"endpoint_identification_algorithm": "none"}, "kafka.ssl.endpoint.identification.algorithm must be one of"),
        ({"cipher_suites": "TLS_X"}, "kafka.ssl.cipher.suites cannot be set: OpenSSL has other names"),
        ({"engine_factory_class": "x"}, "kafka.ssl.engine.factory.class cannot be set: a Java class cannot run here"),
    ],
)
def test_what_is_wrong_with_tls(settings: dict[str, str], expected: str) -> None:
    problems = said(security_protocol="SSL", **{f"ssl_{name}": value for name, value in settings.items()})
    assert expected in problems, problems


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "kafka.sasl.mechanism must be one of PLAIN, SCRAM-SHA-256"),
        ({"mechanism": "GSSAPI"}, "kafka.sasl.mechanism must be one of PLAIN"),
        ({"mechanism": "PLAIN"}, "kafka.sasl.username is missing for PLAIN; or give both in kafka.sasl.jaas.config"),
        ({"mechanism": "PLAIN", "username": "ann"}, "kafka.sasl.password is missing for PLAIN"),
        (
            {"mechanism": "PLAIN", "jaas_config": SCRAM},
            "must have a PlainLoginModule for PLAIN, not a ScramLoginModule",
        ),
        ({"mechanism": "SCRAM-SHA-256", "jaas_config": "x.ScramLoginModule required;"}, "must give a username"),
        ({"mechanism": "PLAIN", "jaas_config": "PlainLoginModule required username=a;"}, "must give a password"),
        ({"mechanism": "PLAIN", "jaas_config": PLAIN, "username": "a"}, "is also in kafka.sasl.jaas.config"),
        (
            {"mechanism": "SCRAM-SHA-256", "jaas_config": SCRAM[:-1] + ' tokenauth="true";'},
            "delegation tokens are not supported",
        ),
        ({"mechanism": "PLAIN", "jaas_config": "Krb5LoginModule required;"}, "not a Krb5LoginModule"),
        ({"mechanism": "PLAIN", "jaas_config": PLAIN, "login_callback_handler_class": "x.Y"}, "can only be Kafka's"),
        ({"mechanism": "OAUTHBEARER", "login_callback_handler_class": "x.Y"}, "can only be Kafka's OAuthBearerLogin"),
        ({"mechanism": "OAUTHBEARER"}, "token.endpoint.url must be set"),
        ({"mechanism": "OAUTHBEARER", "oauthbearer_token_endpoint_url": "ftp://x"}, "must begin with https:, http: or"),
        (
            {"mechanism": "OAUTHBEARER", "oauthbearer_token_endpoint_url": "https://x"},
            "credentials.client.id is missing",
        ),
        (
            {"mechanism": "OAUTHBEARER", "jaas_config": f"{OAUTH} unsecuredLoginLifetimeSeconds='5';"},
            "has unsecuredLoginLifetimeSeconds: for unsigned tokens only",
        ),
        (
            {
                "mechanism": "OAUTHBEARER",
                "jaas_config": f"{OAUTH} unsecuredLoginStringClaim_sub=a;",
                "oauthbearer_token_endpoint_url": "file:/x",
            },
            "has unsigned claims, and a token endpoint",
        ),
        ({"login_class": "x.Y"}, "kafka.sasl.login.class cannot be set: a Java class cannot run here"),
    ],
)
def test_what_is_wrong_with_sasl(settings: dict[str, str], expected: str) -> None:
    problems = said(security_protocol="SASL_SSL", **{f"sasl_{name}": value for name, value in settings.items()})
    assert expected in problems, problems


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"security_protocol": "TLS"},
            "kafka.security.protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ({"sasl_mechanism": "PLAIN"}, "kafka.sasl.mechanism has no effect with kafka.security.protocol=PLAINTEXT"),
        ({"ssl_ca_location": "/ca"}, "kafka.ssl.ca.location has no effect with kafka.security.protocol=PLAINTEXT"),
        ({"security_protocol": "SSL", "sasl_username": "a"}, "set that to SASL_SSL or SASL_PLAINTEXT"),
    ],
)
def test_half_a_configuration_does_not_become_an_open_connection(settings: dict[str, str], expected: str) -> None:
    assert expected in said(**settings)


@pytest.mark.parametrize(
    ("text", "login"),
    [
        ("a.B required;", Login("B", {})),
        ("B REQUIRED x=1 y='two' z=\"3\" ;", Login("B", {"x": "1", "y": "two", "z": "3"})),
        ('B required /* why */ x="a\\\\b\\tc\\101" // more\n;', Login("B", {"x": "a\\b\tcA"})),
        ('B required\n  x="";\n', Login("B", {"x": ""})),
    ],
)
def test_jaas(text: str, login: Login) -> None:
    found = read_jaas(text)
    assert found == login
    assert isinstance(found, Login)
    assert found.options == login.options


@pytest.mark.parametrize(
    ("text", "must"),
    [
        ("", "begin with a login module and the word required"),
        ("B;", "begin with a login module and the word required"),
        ('B x="1";', "begin with a login module and the word required"),
        ("KafkaClient { B required; };", "begin with a login module and the word required"),
        ('B required x="1"', "end with a semicolon"),
        ('B required x="1"; C required;', "hold one login module, and nothing behind its semicolon"),
        ("B required x;", 'give options as name="value"'),
        ("B required x=;", 'give options as name="value"'),
        ("B required x y=1;", 'give options as name="value"'),
        ("B required =1;", 'give options as name="value"'),
        ("B required x=1 x=2;", "give the option x once"),
        ('B required x="1;', "close its quotes"),
        ("B required x=a/b;", "put quotes around values"),
    ],
)
def test_jaas_that_is_wrong(text: str, must: str) -> None:
    found = read_jaas(text)
    assert isinstance(found, str)
    assert must in found


@pytest.mark.parametrize(
    "name",
    [
        "key.deserializer",
        "value.deserializer",
        "key.serializer",
        "value.serializer",
        "auto.offset.reset",
        "enable.auto.commit",
        "interceptor.classes",
        "transactional.id",
        "partitioner.class",
    ],
)
def test_settings_that_would_change_the_query(name: str) -> None:
    (problem,) = read_kafka_settings({f"kafka.{name}": "x"})[1]
    assert problem.message.startswith(f"kafka.{name} cannot be set: ")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.fetch_max_bytes", "kafka.fetch.max.bytes"),
        ("kafka.max.poll.record", "kafka.max.poll.records"),
    ],
)
def test_misspelt_settings(name: str, meant: str) -> None:
    (problem,) = read_kafka_settings({name: "x"})[1]
    assert problem.message == f"Kafka's clients have no setting {name}; did you mean {meant}?"


def test_a_setting_like_no_other() -> None:
    (problem,) = read_kafka_settings({"kafka.qqqq": "x"})[1]
    assert problem.message == "Kafka's clients have no setting kafka.qqqq"


def test_every_name_has_one_fate() -> None:
    used = {setting.name for setting in KAFKA}
    assert not used & WITHOUT_EFFECT
    assert not used & set(REFUSED)
    assert not WITHOUT_EFFECT & set(REFUSED)


def test_numbers_have_bounds() -> None:
    for name, text in {"fetch.max.bytes": "1", "request.timeout.ms": "0", "fetch.min.bytes": "-1"}.items():
        (problem,) = read_kafka_settings({f"kafka.{name}": text})[1]
        assert problem.message.startswith(f"kafka.{name} must be at least ")
