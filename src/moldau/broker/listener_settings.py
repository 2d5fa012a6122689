"""Listeners and advertised listeners: their syntax and checks. The sockets are in net/."""

from collections.abc import Mapping
from typing import NamedTuple

from moldau.base.session import SecurityProtocol
from moldau.base.settings import SettingError

PROTOCOLS = tuple(protocol.value for protocol in SecurityProtocol)
WILDCARDS = frozenset({"", "0.0.0.0", "::", "0:0:0:0:0:0:0:0"})
HOST_LETTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-%._:")
MAX_PORT = 65535


class Listener(NamedTuple):
    """An address with a name; port 0 stands for a free port that the operating system picks."""

    name: str
    protocol: SecurityProtocol
    host: str
    port: int

    @property
    def everywhere(self) -> bool:
        return self.host in WILDCARDS

    @property
    def loopback(self) -> bool:
        return self.host == "localhost" or self.host == "::1" or self.host.startswith("127.")

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def read_protocols(text: str) -> dict[str, SecurityProtocol] | SettingError:
    """`listener.security.protocol.map`: the security protocol of each listener."""
    setting = "listener.security.protocol.map"
    protocols: dict[str, SecurityProtocol] = {}
    for pair in filter(None, (word.strip() for word in text.split(","))):
        name, _, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not name or protocol not in PROTOCOLS:
            wanted = f"NAME:PROTOCOL pairs, with a protocol of {', '.join(PROTOCOLS)}"
            return SettingError(setting, f"{setting} must be a list of {wanted}, got '{pair}'")
        if name in protocols:
            return SettingError(setting, f"{setting} names {name} twice")
        protocols[name] = SecurityProtocol(protocol)
    return protocols


def read_listener(setting: str, text: str, protocols: Mapping[str, SecurityProtocol]) -> Listener | SettingError:
    """One `NAME://host:port`."""
    name, found, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    name = name.strip().upper()
    if not (name and found and colon and port.isascii() and port.isdigit()) or set(host) - HOST_LETTERS:
        return SettingError(setting, f"{setting} must be a list of NAME://host:port, got '{text}'")
    if len(port) > 5 or int(port) > MAX_PORT:
        return SettingError(setting, f"{setting} has a port above {MAX_PORT}: '{text}'")
    if name not in protocols:
        words = f"{setting} has {name}, but listener.security.protocol.map does not name its security protocol"
        return SettingError(setting, f"{words}; add {name}:PLAINTEXT to the map")
    return Listener(name, protocols[name], host, int(port))


def clashes(listeners: list[Listener]) -> SettingError | None:
    """Listeners with the same name or port."""
    for position, listener in enumerate(listeners):
        for other in listeners[:position]:
            if other.name == listener.name:
                return SettingError("listeners", f"listeners has the name {listener.name} twice; each needs its own")
            same_host = other.host == listener.host or other.everywhere or listener.everywhere
            if listener.port and other.port == listener.port and same_host:
                return SettingError("listeners", f"listeners has port {listener.port} twice: {other} and {listener}")
    return None


def advertise(listeners: list[Listener], host_name: str) -> list[Listener]:
    """The default of advertised.listeners: the host name in place of every interface."""
    return [each._replace(host=host_name) if each.everywhere else each for each in listeners]


def wrong_advertised(advertised: list[Listener], listeners: list[Listener]) -> SettingError | None:
    """Advertised addresses that no client could use."""
    setting = "advertised.listeners"
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in names:
            words = f"{setting} has {listener.name}, which is not in listeners ({', '.join(sorted(names))})"
            return SettingError(setting, words)
        if listener.host and listener.everywhere:
            words = f"{setting} must be addresses that clients can reach, and {listener.host} is none"
            return SettingError(setting, f"{words}; write this machine's host name or address")
    return None


def advertised_warnings(listeners: tuple[Listener, ...], advertised: tuple[Listener, ...]) -> list[str]:
    """Advertised addresses that work for some clients only, in words (the commonest trouble with Kafka)."""
    listening = {listener.name: listener for listener in listeners}
    return [
        f"advertised.listeners tells every client to connect to {told.address}: clients on other machines will try to "
        f"reach themselves; listeners accepts them ({listening[told.name]}), so advertise an address they can reach"
        for told in advertised
        if told.loopback and told.name in listening and not listening[told.name].loopback
    ]
