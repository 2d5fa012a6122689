"""HTTPS: a registry with a certificate, clients that need one, and a follower that forwards over TLS."""

import json
import ssl
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from services.conftest import StartRegistry
from support.clients.cli import fail, runner, succeed
from support.services.registry import RegistryProcess

REGISTERS = json.dumps({"schema": '"string"'}).encode()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    succeed(runner("")("certs", "create", str(directory), "--host", "127.0.0.1", "--client", "ada"))
    return directory


def over_tls(start: StartRegistry, certificates: Path, *options: str) -> RegistryProcess:
    pem = ("--tls-certificate", str(certificates / "broker.pem"), "--peer-ca", str(certificates / "ca.pem"))
    registry = start(*pem, "--session-timeout", "2", *options, ready=False)
    registry.await_line("Schema registry at https://")
    return registry


def ask(
    registry: RegistryProcess, certificates: Path, path: str, body: bytes | None = None, client: str = ""
) -> object:
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    if client:
        context.load_cert_chain(certificates / f"{client}.pem")
    request = Request(f"https://127.0.0.1:{registry.port}{path}", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60, context=context) as response:
        return json.loads(response.read())


def test_a_follower_forwards_over_tls(start_registry: StartRegistry, certificates: Path) -> None:
    writer = over_tls(start_registry, certificates)
    registered = ask(writer, certificates, "/subjects/s/versions", REGISTERS)
    follower = over_tls(start_registry, certificates, "--ineligible")
    assert ask(follower, certificates, "/subjects/t/versions", REGISTERS) == registered
    assert ask(follower, certificates, "/subjects") == ["s", "t"]
    with pytest.raises(OSError, match=r"."):
        writer.ask("GET", "/subjects")


def test_clients_need_a_certificate(start_registry: StartRegistry, certificates: Path) -> None:
    registry = over_tls(start_registry, certificates, "--tls-client-ca", str(certificates / "ca.pem"))
    with pytest.raises((URLError, OSError)):
        ask(registry, certificates, "/subjects")
    assert ask(registry, certificates, "/subjects", client="ada") == []


def test_certificates_that_are_none(tmp_path: Path) -> None:
    run = runner("127.0.0.1:1")
    missing = str(tmp_path / "missing.pem")
    fail(run("registry", "--listen", "127.0.0.1:0", "--tls-certificate", missing), 1, missing, "No such file")
    fail(run("registry", "--listen", "127.0.0.1:0", "--tls-key", missing), 2, "need --tls-certificate")
