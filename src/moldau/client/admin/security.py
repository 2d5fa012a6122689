"""librdkafka's properties for TLS and SASL, as the direct client takes them; unknown ones are refused."""

from collections.abc import Mapping

from moldau.client.admin.errors import AdminError, InvalidArgument
from moldau.client.direct.security import PLAINTEXT, Security, Tls
from moldau.security.sasl_client import Sasl

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Names of a property; PEM is a file's path or its text.
NAMES: Mapping[str, tuple[str, ...]] = {
    "mechanism": ("sasl.mechanism", "sasl.mechanisms"),
    "username": ("sasl.username",),
    "password": ("sasl.password",),
    "ca": ("ssl.ca.location", "ssl.ca.pem"),
    "certificate": ("ssl.certificate.location", "ssl.certificate.pem"),
    "key": ("ssl.key.location", "ssl.key.pem"),
    "key_password": ("ssl.key.password",),
    "host_check": ("ssl.endpoint.identification.algorithm",),
}
KNOWN = {name for names in NAMES.values() for name in names}


class UnsupportedSecurity(AdminError):
    """A setting that librdkafka has and the direct client does not."""


def read_security(properties: Mapping[str, str]) -> Security:
    """The security of a connection; InvalidArgument or UnsupportedSecurity if it cannot be had."""
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise InvalidArgument(f"security.protocol={protocol} is none of {', '.join(PROTOCOLS)}")
    if protocol == "plaintext":
        return PLAINTEXT
    secured = ("ssl.", "sasl.", "enable.ssl.", "enable.sasl.")
    unknown = sorted(name for name in properties if name.startswith(secured) and name not in KNOWN)
    if unknown:
        raise UnsupportedSecurity(f"{unknown[0]} is not supported here; supported are {', '.join(sorted(KNOWN))}")
    given = {kind: _first(properties, names) for kind, names in NAMES.items()}
    tls = Tls(
        given["ca"] or None,
        given["certificate"] or None,
        given["key"] or None,
        given["key_password"] or None,
        check_host_name=given["host_check"].lower() != "none",
    )
    return Security(tls if protocol.endswith("ssl") else None, _sasl(given) if protocol.startswith("sasl") else None)


def _first(properties: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((properties[name] for name in names if name in properties), "")


def _sasl(given: Mapping[str, str]) -> Sasl:
    mechanism = given["mechanism"].upper()
    if mechanism not in MECHANISMS:
        supported = ", ".join(MECHANISMS)
        raise UnsupportedSecurity(f"SASL {mechanism or 'GSSAPI'} is not supported here; supported are {supported}")
    return Sasl(mechanism, given["username"], given["password"])
