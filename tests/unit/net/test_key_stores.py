"""Key stores, trust stores and contexts: every format, and one clear sentence for each thing that can be wrong."""

import datetime
import ssl
from pathlib import Path

import pytest

from moldau.net.key_stores import JKS, PEM, PKCS12, StoreSettings, TlsProblem, read_key_pair, read_trusted
from moldau.net.tls_context import TlsSettings, client_context, openssl_name, server_tls
from moldau.tools.certs.authority import Authority, write_private
from support.tls.clients import authority, broker_certificate, keys, settings, trust

NOW = datetime.datetime.now(datetime.UTC)
JAVA = b"\xfe\xed\xfe\xed\x00\x00\x00\x02"


def store(
    kind: str, path: Path, content: str | bytes, password: str | None = None, key_password: str | None = None
) -> StoreSettings:
    write_private(path, content)
    return StoreSettings(
        "ssl.keystore", kind, str(path), password, key_password=key_password, key_password_setting="ssl.key.password"
    )


@pytest.mark.parametrize("kind", [PKCS12, JKS])
def test_pkcs12(tmp_path: Path, kind: str) -> None:
    made = broker_certificate()
    pair = read_key_pair(store(kind, tmp_path / "s", made.pkcs12("secret"), "secret"), NOW)
    assert pair.certificates == (made.certificate,)


def test_pem_in_any_order_and_encrypted(tmp_path: Path) -> None:
    made = broker_certificate()
    for content, password in (
        (made.keystore_pem(), None),
        (made.chain_pem + made.key_pem(), None),
        (made.keystore_pem("secret"), "secret"),
        (made.keystore_pem() + made.authority_pem, None),  # the root is not sent: clients have it
    ):
        pair = read_key_pair(store(PEM, tmp_path / "s", content, key_password=password), NOW)
        assert pair.certificates == (made.certificate,)


def test_texts_in_settings() -> None:
    assert read_key_pair(keys(broker_certificate()), NOW).certificates == (broker_certificate().certificate,)
    assert read_trusted(trust(authority().pem + Authority("x").pem))[0] == authority().certificate


def test_trusted_certificates_in_pkcs12(tmp_path: Path) -> None:
    found = read_trusted(store(PKCS12, tmp_path / "s", broker_certificate().pkcs12("secret"), "secret"))
    assert authority().certificate in found


def problem(wrong: StoreSettings) -> str:
    with pytest.raises(TlsProblem) as caught:
        read_key_pair(wrong, NOW)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "content", "password", "key_password", "words"),
    [
        (JKS, JAVA, None, None, "Convert it: keytool -importkeystore -srckeystore"),
        (JKS, "pem", None, None, "is PEM; set ssl.keystore.type=PEM"),
        ("BKS", "p12", "x", None, "ssl.keystore.type must be PEM or PKCS12, got BKS"),
        (PKCS12, "p12", "y", None, "does not open with ssl.keystore.password"),
        (PKCS12, "p12", None, None, "ssl.keystore.password is missing"),
        (PEM, "pem", "x", None, "ssl.keystore.password cannot be given with PEM"),
        (PEM, "certificate", None, None, "has no private key in PEM"),
        (PEM, "key", None, None, "has no certificates in PEM"),
        (PEM, "encrypted", None, None, "ssl.key.password is missing: the private key is encrypted"),
        (PEM, "encrypted", None, "y", "does not open with ssl.key.password"),
        (PEM, "pem", None, "y", "ssl.key.password is not needed: the key is plain"),
        (PEM, "mixed", None, None, "the private key is not that of the first certificate"),
        (PEM, "expired", None, None, "the certificate expired on"),
    ],
)
def test_each_problem_of_a_file_has_its_sentence(
    tmp_path: Path, kind: str, content: str | bytes, password: str | None, key_password: str | None, words: str
) -> None:
    made = broker_certificate()
    contents: dict[object, str | bytes] = {
        "pem": made.keystore_pem(),
        "p12": made.pkcs12("x"),
        "certificate": made.chain_pem,
        "key": made.key_pem(),
        "encrypted": made.keystore_pem("x"),
        "mixed": authority().client("other").key_pem() + made.chain_pem,
        "expired": authority().broker(["localhost"], days=-1).keystore_pem(),
    }
    said = problem(store(kind, tmp_path / "store", contents.get(content, content), password, key_password))
    assert words in said
    assert said.startswith("ssl.key")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (StoreSettings("ssl.keystore", PEM, "/nowhere/x", None), "ssl.keystore.location /nowhere/x cannot be read"),
        (StoreSettings("ssl.keystore", PEM, None, None), "ssl.keystore.location is missing"),
        (StoreSettings("ssl.keystore", JKS, None, None, "k", "c"), "ssl.keystore.type must be PEM, got JKS"),
    ],
)
def test_settings_that_name_no_store(wrong: StoreSettings, words: str) -> None:
    assert words in problem(wrong)


@pytest.mark.parametrize(
    ("name", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_ciphers(name: str, openssl: str) -> None:
    assert openssl_name(name) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


def limited(protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3"), ciphers: tuple[str, ...] = ()) -> TlsSettings:
    usual = settings()
    return TlsSettings("", usual.keys, usual.trust, protocols, ciphers)


def test_versions_and_ciphers() -> None:
    only = server_tls(limited(("TLSv1.3",))).context
    assert only.minimum_version is only.maximum_version is ssl.TLSVersion.TLSv1_3
    old = server_tls(limited(ciphers=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",))).context
    assert old.maximum_version is ssl.TLSVersion.TLSv1_2
    both = server_tls(limited(ciphers=("TLS_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"))).context
    assert (both.minimum_version, both.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    new = server_tls(limited(ciphers=("TLS_AES_256_GCM_SHA384",))).context
    assert new.minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (limited(("TLSv1.1",)), "ssl.enabled.protocols must be a list of TLSv1.2, TLSv1.3, got 'TLSv1.1'"),
        (limited(()), "ssl.enabled.protocols must be a list of"),
        (limited(ciphers=("TLS_NULL",)), "ssl.cipher.suites has no cipher suite that OpenSSL knows: TLS_NULL"),
        (
            limited(("TLSv1.3",), ("ECDHE-ECDSA-AES256-GCM-SHA384",)),
            "ssl.cipher.suites has no cipher suite of ssl.enabled",
        ),
    ],
)
def test_versions_and_ciphers_that_cannot_be(wrong: TlsSettings, words: str) -> None:
    with pytest.raises(TlsProblem) as caught:
        server_tls(wrong)
    assert words in str(caught.value)


def test_host_names_are_checked_unless_told_otherwise() -> None:
    usual = settings()
    assert client_context(usual).check_hostname
    free = client_context(TlsSettings("", usual.keys, usual.trust, check_host_name=False))
    assert not free.check_hostname
    assert free.verify_mode is ssl.CERT_REQUIRED
