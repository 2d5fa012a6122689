"""`moldau registry`: run a schema registry for Moldau or Apache Kafka. The work is in `services`."""

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.tools.common.app import App
from moldau.tools.common.failure import FAILED, CommandError, announce, misused, note
from moldau.tools.common.formats import read_size
from moldau.tools.common.options import Bootstrap, Properties, Shared, merge

if TYPE_CHECKING:
    from moldau.client.admin.target import Target
    from moldau.services.http.logins import BrokerLogins
    from moldau.services.http.settings import Address, HttpSettings, ServerTls
    from moldau.services.registry.product import RegistrySettings

app = App(name="registry", help="Run a schema registry.")

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TLS, CLUSTER, LIMITS = "TLS", "Several registries", "Limits"

Listen = Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.")]
AuthenticationOption = Annotated[
    str | None,
    typer.Option(
        "--authentication",
        metavar="MECHANISM",
        help=f"Require logins, checked at the brokers by SASL {', '.join(MECHANISMS)}; ACLs give rights.",
    ),
]
SuperUsers = Annotated[
    list[str] | None,
    typer.Option("--super-user", metavar="NAME", help="A user who may do everything, as in super.users."),
]
Certificate = Annotated[
    str | None,
    typer.Option("--tls-certificate", metavar="FILE", help="PEM certificate: serve HTTPS.", rich_help_panel=TLS),
]
Key = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its PEM key.", rich_help_panel=TLS)]
ClientCa = Annotated[
    str | None,
    typer.Option("--tls-client-ca", metavar="FILE", help="Require certificates of it.", rich_help_panel=TLS),
]
Advertised = Annotated[
    str | None,
    typer.Option(
        "--advertised",
        metavar="HOST:PORT",
        help="Where the other registries reach this one.",
        show_default="--listen",
        rich_help_panel=CLUSTER,
    ),
]
Topic = Annotated[str, typer.Option("--topic", help="The topic with the schemas.", rich_help_panel=CLUSTER)]
Group = Annotated[str, typer.Option("--group", help="The group that elects the writer.", rich_help_panel=CLUSTER)]
Ineligible = Annotated[
    bool, typer.Option("--ineligible", help="Never write, only read and forward.", rich_help_panel=CLUSTER)
]
SessionTimeout = Annotated[
    float,
    typer.Option(
        "--session-timeout",
        metavar="SECONDS",
        help="After so long without it another registry writes.",
        min=0.5,
        rich_help_panel=CLUSTER,
    ),
]
PeerCa = Annotated[
    str | None,
    typer.Option(
        "--peer-ca", metavar="FILE", help="Verifies certificates of other registries.", rich_help_panel=CLUSTER
    ),
]
Cors = Annotated[
    list[str] | None, typer.Option("--cors", metavar="ORIGIN", help="Web site whose pages may ask; * for all.")
]
MaxBody = Annotated[str, typer.Option("--max-body", metavar="SIZE", help="Largest request.", rich_help_panel=LIMITS)]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="Longest request.", min=1, rich_help_panel=LIMITS)
]
LegacyConflict = Annotated[
    bool, typer.Option("--legacy-conflict", help="Answer incompatible schemas with code 409 instead of 40901.")
]


@app.command("registry")
def registry(
    ctx: typer.Context,
    listen: Listen = "localhost:8081",
    authentication: AuthenticationOption = None,
    super_users: SuperUsers = None,
    certificate: Certificate = None,
    key: Key = None,
    client_ca: ClientCa = None,
    advertised: Advertised = None,
    topic: Topic = "_schemas",
    group: Group = "schema-registry",
    ineligible: Ineligible = False,
    session_timeout: SessionTimeout = 10.0,
    peer_ca: PeerCa = None,
    cors: Cors = None,
    max_body: MaxBody = "16MiB",
    timeout: Timeout = 60.0,
    legacy_conflict: LegacyConflict = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
) -> None:
    """Run a schema registry with Confluent's REST interface in the foreground; Ctrl-C stops it."""
    from moldau.services.http.settings import HttpSettings
    from moldau.services.registry.election import timing_of
    from moldau.services.registry.node import NodeSettings
    from moldau.services.registry.product import RegistrySettings

    target = merge(ctx.obj or Shared(), bootstrap, None, properties).target
    http = HttpSettings(
        _address(listen),
        _tls(certificate, key, client_ca),
        max_body_bytes=read_size(max_body),
        request_timeout_s=timeout,
        cors_origins=tuple(cors or ()),
        authentication=authentication is not None,
    )
    if authentication is None and target.properties.get("security.protocol", "").lower().startswith("sasl"):
        note("Anyone who reaches this registry may use it: the brokers want logins, but --authentication is not given.")
    node = NodeSettings(target, topic, group, eligible=not ineligible, timing=timing_of(session_timeout))
    settings = RegistrySettings(node, advertised, legacy_conflict, peer_ca, tuple(super_users or ()))
    _run(settings, http, None if authentication is None else _logins(target, authentication))


def _run(settings: "RegistrySettings", http: "HttpSettings", logins: "BrokerLogins | None") -> None:
    from moldau.services.http.server import run, set_up_logging
    from moldau.services.registry.product import RegistryProduct

    set_up_logging()
    problems: list[str] = []

    def tell(_: str, url: str) -> None:
        announce([f"Schema registry at {url}", "Stop with Ctrl-C."])

    try:
        listened = run([RegistryProduct(settings, http, logins)], tell, problems.append)
    finally:
        if logins is not None:
            logins.close()
    if not listened:
        raise CommandError(problems[0], exit_code=FAILED)


def _address(text: str) -> "Address":
    from moldau.services.http.settings import InvalidAddress, read_address

    try:
        return read_address(text)
    except InvalidAddress as problem:
        raise misused(f"--listen: {problem}") from None


def _tls(certificate: str | None, key: str | None, client_ca: str | None) -> "ServerTls | None":
    from moldau.services.http.settings import ServerTls

    if certificate is None:
        if key is not None or client_ca is not None:
            raise misused("--tls-key and --tls-client-ca need --tls-certificate")
        return None
    return ServerTls(certificate, key, client_ca=client_ca)


def _logins(target: "Target", mechanism: str) -> "BrokerLogins":
    from moldau.client.admin.security import read_security
    from moldau.services.http.logins import BrokerLogins

    if mechanism.upper() not in MECHANISMS:
        raise misused(f"--authentication {mechanism!r} is not known", remedy=f"Give one of {', '.join(MECHANISMS)}")
    return BrokerLogins(target.addresses(), read_security(target.properties), mechanism=mechanism.upper())
