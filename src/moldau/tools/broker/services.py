"""The services beside `moldau up`: in a process of their own, so that no HTTP request costs the broker a turn."""

from pathlib import Path
from typing import TYPE_CHECKING

from moldau.base.properties import Properties
from moldau.client.errors import InvalidUse
from moldau.client.settings import read_property_file
from moldau.services.http.settings import InvalidAddress, read_address
from moldau.services.supervisor import Supervisor
from moldau.services.table import SERVICES
from moldau.services.wanted import Wanted
from moldau.tools.common.failure import announce, misused

if TYPE_CHECKING:
    from moldau.tools.broker.launch import Launch

PLAIN = "PLAINTEXT://"


class Services:
    """What the command line asks for; raises CommandError for mistakes in it."""

    def __init__(self, launch: "Launch", properties: Properties) -> None:
        self._client = {} if launch.services_config is None else read_client_properties(launch.services_config)
        self._addresses = read_addresses({"registry": launch.registry})
        self._reachable = bool(self._client) or properties.get("listeners", "").startswith(PLAIN)
        self._supervisor: Supervisor | None = None

    def start(self, bootstrap: str) -> None:
        """Start them beside a broker that is ready."""
        if not self._reachable:
            reason = "the first listener is not PLAINTEXT. Name client properties for them with --services-config"
            announce([f"The services do not start: {reason}"])
            return
        wanted = Wanted(bootstrap, self._client, self._addresses)
        self._supervisor = Supervisor(wanted.to_json(), lambda line: announce([line]))
        self._supervisor.start()

    def stop(self) -> None:
        if self._supervisor is not None:
            self._supervisor.stop()


def read_client_properties(name: str) -> dict[str, str]:
    try:
        return {key: str(value) for key, value in read_property_file(Path(name)).items()}
    except InvalidUse as problem:
        raise misused(f"--services-config: {problem}") from None


def read_addresses(given: dict[str, str | None]) -> dict[str, str]:
    """Where each service listens: as given, or by default."""
    addresses = {name: given.get(name) or service.address for name, service in SERVICES.items()}
    for name, address in addresses.items():
        try:
            read_address(address)
        except InvalidAddress as problem:
            raise misused(f"--{name}: {problem}") from None
    return addresses
