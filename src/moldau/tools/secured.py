"""librdkafka's properties for TLS and SASL, as the direct client has them. What is not known is refused."""

from collections.abc import Mapping

from moldau.client.direct.security import PLAINTEXT, Sasl, Security, Tls
from moldau.tools.common.failure import CommandError, misused

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# What a property may be called, by what it is; PEM is a file's path or its text.
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


def read_security(properties: Mapping[str, str]) -> Security:
    """How to connect; CommandError if the properties ask for more than can be done."""
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise misused(f"security.protocol={protocol} is none of {', '.join(PROTOCOLS)}")
    if protocol == "plaintext":
        return PLAINTEXT
    secured = ("ssl.", "sasl.", "enable.ssl.", "enable.sasl.")
    unknown = sorted(name for name in properties if name.startswith(secured) and name not in KNOWN)
    if unknown:
        raise CommandError(f"this command does not know {unknown[0]}", remedy=f"It knows: {', '.join(sorted(KNOWN))}")
    given = {what: _first(properties, names) for what, names in NAMES.items()}
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
        spoken = ", ".join(MECHANISMS)
        raise CommandError(f"this command does not speak SASL {mechanism or 'GSSAPI'}", remedy=f"It speaks: {spoken}")
    return Sasl(mechanism, given["username"], given["password"])
