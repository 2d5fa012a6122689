"""`moldau certs create`: a certificate authority, a broker's and clients' certificates, for tests and laptops."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from moldau.tools.certs.authority import LONGEST_NAME, Authority, write_private
from moldau.tools.common.app import App
from moldau.tools.common.failure import CommandError, misused
from moldau.tools.common.output import print_text

app = App(name="certs", help="Create certificates for tests and laptops.")

HOSTS = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"[\w*.:-]{1,253}", re.ASCII)
TAKEN = ("ca", "broker")


@app.callback()
def certs() -> None:
    """Create certificates for tests and laptops."""


@app.command("create")
def create(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A directory for the files; made if it is missing.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", help="A name or address of the broker; may be repeated. Default: those of this machine."
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option("--client", help="The name of a client that gets a certificate; may be repeated."),
    ] = None,
    rsa: Annotated[bool, typer.Option("--rsa", help="RSA keys, for clients that know no others.")] = False,
) -> None:
    """Create an authority, a certificate for brokers, and one for each client. Not for production: the keys are plain.

    All files are readable by their owner alone. Files of an earlier run are not replaced.
    """
    names = list(dict.fromkeys(client or []))
    for name in names:
        check_client(name)
    for each in host or ():
        if not HOST.fullmatch(each):
            raise misused(f"--host {each!r} is not a host name or an address", remedy="Give one such as kafka.example")
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        present = [directory / f"{name}.pem" for name in (*TAKEN, *names) if (directory / f"{name}.pem").exists()]
        if present:
            raise CommandError(f"{present[0]} is there already", remedy="Name another directory, or remove it first")
        _create(directory, host or list(HOSTS), names, Authority(with_rsa=rsa))
    except OSError as problem:
        raise CommandError(f"cannot write to {problem.filename}: {problem.strerror}") from None
    print_text("\n".join(_told(directory, names)))


def check_client(name: str) -> None:
    """A client's name is the common name of its certificate, and that of a file."""
    if not name or "/" in name or len(name) > LONGEST_NAME:
        problem = f"has more than {LONGEST_NAME} characters" if len(name) > LONGEST_NAME else "cannot be a file's name"
        raise misused(f"--client {name!r} {problem}", remedy="Give one such as alice")
    if name in TAKEN:
        raise misused(f"--client {name!r} is taken: {name}.pem is another file", remedy="Give another name")


def _create(directory: Path, hosts: Sequence[str], clients: Sequence[str], authority: Authority) -> None:
    write_private(directory / "ca.key", authority.key_pem)
    write_private(directory / "ca.pem", authority.pem)
    write_private(directory / "broker.pem", authority.broker(hosts).keystore_pem())
    for name in clients:
        write_private(directory / f"{name}.pem", authority.client(name).keystore_pem())


def _told(directory: Path, clients: Sequence[str]) -> list[str]:
    """What was made, and the settings that use it."""
    lines = [
        f"Certificates for tests and laptops are in {directory}, valid for a year; the keys have no password.",
        "",
        "A broker with TLS:",
        f"  moldau broker --set listeners=SSL://:9093 --set security.inter.broker.protocol=SSL \\\n"
        f"    --set ssl.keystore.type=PEM --set ssl.keystore.location={directory / 'broker.pem'} \\\n"
        f"    --set ssl.truststore.type=PEM --set ssl.truststore.location={directory / 'ca.pem'}",
        "A client:",
        f"  moldau doctor --bootstrap localhost:9093 -X security.protocol=ssl "
        f"-X ssl.ca.location={directory / 'ca.pem'}",
    ]
    if clients:
        path = directory / f"{clients[0]}.pem"
        lines += [
            f"A client as User:CN={clients[0]}, if the broker has ssl.client.auth=required:",
            f"  … -X ssl.certificate.location={path} -X ssl.key.location={path}",
        ]
    return lines
