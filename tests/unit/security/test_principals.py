"""Subjects as Java prints them, and the rules that turn them into user names."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from moldau.security.distinguished_names import MalformedCertificate, subject_of
from moldau.security.principals import BadRules, read_rules, user_name
from support.tls.clients import authority


def subject(*parts: tuple[x509.ObjectIdentifier, str]) -> str:
    name = x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])
    return subject_of(authority().client(subject=name).certificate.public_bytes(Encoding.DER))


# Checked with javax.security.auth.x500.X500Principal.getName() of OpenJDK.
@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([(NameOID.COMMON_NAME, "alice")], "CN=alice"),
        (
            [(NameOID.COUNTRY_NAME, "CZ"), (NameOID.ORGANIZATION_NAME, "Moldau"), (NameOID.COMMON_NAME, "alice")],
            "CN=alice,O=Moldau,C=CZ",
        ),
        ([(NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h=i#j')], 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
        ([(NameOID.COMMON_NAME, "  two spaces  ")], "CN=\\ \\ two spaces\\ \\ "),
        ([(NameOID.COMMON_NAME, "Bedřich Smetana")], "CN=Bedřich Smetana"),
        ([(NameOID.EMAIL_ADDRESS, "a@b.c")], "1.2.840.113549.1.9.1=#16056140622e63"),
        ([(NameOID.DOMAIN_COMPONENT, "org"), (NameOID.USER_ID, "u")], "UID=u,DC=org"),
        ([], ""),
    ],
)
def test_subjects_are_java_s(parts: list[tuple[x509.ObjectIdentifier, str]], text: str) -> None:
    assert subject(*parts) == text


def test_several_attributes_of_one_name_stay_together() -> None:
    both = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "b")]
    )
    last = x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "c")])
    certificate = authority().client(subject=x509.Name([both, last])).certificate
    assert subject_of(certificate.public_bytes(Encoding.DER)) == "O=c,CN=a+OU=b"


@pytest.mark.parametrize("damage", [b"", b"\x30", b"\x30\x82\x01", b"x" * 100, bytes(100)])
def test_what_is_no_certificate_is_refused(damage: bytes) -> None:
    with pytest.raises(MalformedCertificate):
        subject_of(damage)


def test_a_certificate_that_is_cut_short_is_refused() -> None:
    whole = authority().client("alice").certificate.public_bytes(Encoding.DER)
    for size in range(120):
        with pytest.raises(MalformedCertificate):
            subject_of(whole[:size])


@pytest.mark.parametrize(
    ("rules", "dn", "name"),
    [
        ("DEFAULT", "CN=alice,OU=x", "CN=alice,OU=x"),
        ("", "CN=alice", "CN=alice"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka,OU=ServiceUsers,O=org", "kafka"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L, DEFAULT", "CN=Adam,OU=Admin,O=X", "adam@admin"),
        ("RULE:^CN=(.*?),.*$/$1/U,DEFAULT", "CN=Adam,OU=Admin", "ADAM"),
        ("RULE:^OU=(.*)$/$1/,DEFAULT", "CN=alice", "CN=alice"),
        ("RULE:CN=(?<user>\\w+)/${user}/", "CN=alice", "alice"),
        ("RULE:CN=(\\w+)/$1\\/x/\nDEFAULT", "CN=alice", "alice/x"),
        ("RULE:CN=(\\w+)/$1$2/", "CN=alice", "alice$2"),
        ("RULE:CN=a/b/", "CN=alice", None),
    ],
)
def test_rules(rules: str, dn: str, name: str | None) -> None:
    assert user_name(dn, read_rules(rules)) == name


@pytest.mark.parametrize("text", ["default", "RULE:", "RULE:a/b", "RULE:(/b/", "RULE:a/b/X", "DEFAULT;DEFAULT"])
def test_rules_that_cannot_be_read(text: str) -> None:
    with pytest.raises(BadRules):
        read_rules(text)


def test_a_subject_names_a_member_of_an_organisation() -> None:
    """The rule of docs/security.md."""
    rules = read_rules(r"RULE:^CN=([^,]*),O=([^,]*)$/$2\/$1/L,DEFAULT")
    assert user_name("CN=Alice,O=Acme", rules) == "acme/alice"
    assert user_name("CN=Alice,OU=Acme", rules) == "CN=Alice,OU=Acme"
