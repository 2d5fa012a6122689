"""The schema registry as a service: its node, its application, and what both need."""

import socket
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.routing import Route

from moldau.client.admin.security import read_security
from moldau.client.admin.target import Target
from moldau.services.http.application import build_application
from moldau.services.http.authentication import Logins
from moldau.services.http.logins import BrokerLogins
from moldau.services.http.settings import HttpSettings
from moldau.services.registry.access import AclAccess, Everyone
from moldau.services.registry.api.dispatch import MEDIA_TYPE, Dispatch
from moldau.services.registry.election import Identity
from moldau.services.registry.forwarding import Forwarder
from moldau.services.registry.node import NodeSettings, RegistryNode

METHODS: Final = ("GET", "POST", "PUT", "DELETE")
EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    node: NodeSettings
    advertised: str | None = None  # HOST:PORT, where the other registries reach this one
    legacy_conflict: bool = False  # 409 instead of 40901 in the body
    peer_ca: str | None = None  # verifies the certificates of the other registries
    super_users: tuple[str, ...] = ()


class RegistryProduct:
    name = "registry"
    title = "schema registry"

    def __init__(self, settings: RegistrySettings, http: HttpSettings, logins: Logins | None = None) -> None:
        self.settings = http
        self.node = RegistryNode(settings.node)
        self._advertised = settings.advertised
        self._eligible = settings.node.eligible
        self._forwarder = Forwarder(settings.peer_ca)
        self._acls = AclAccess(settings.node.target, settings.super_users) if http.authentication else None
        dispatch = Dispatch(
            self.node,
            self._forwarder,
            self._acls or Everyone(),
            group=settings.node.group,
            legacy_conflict=settings.legacy_conflict,
        )
        routes = [Route("/{path:path}", dispatch.__call__, methods=list(METHODS))]
        self._app = build_application(routes, http, self.node.not_ready, logins=logins, media_type=MEDIA_TYPE)

    @property
    def app(self) -> Starlette:
        return self._app

    async def start(self, url: str) -> None:
        if self._acls is not None:
            self._acls.start()
        self.node.start(self._identity(url))

    async def stop(self) -> None:
        await self.node.stop()
        if self._acls is not None:
            await self._acls.stop()
        self._forwarder.close()

    def _identity(self, url: str) -> Identity:
        """How other registries reach this one: as told, or where it listens."""
        parts = urlsplit(url)
        if self._advertised is not None:
            told = urlsplit(f"//{self._advertised}")
            return Identity(parts.scheme, told.hostname or "", told.port or parts.port or 0, self._eligible)
        host = self.settings.address.host
        named = socket.gethostname() if host in EVERY_INTERFACE else host
        return Identity(parts.scheme, named, parts.port or 0, self._eligible)


def registry(target: Target, http: HttpSettings) -> RegistryProduct:
    """The registry beside `moldau up`. On a cluster that wants logins it wants them too."""
    settings = RegistrySettings(NodeSettings(target))
    security = read_security(target.properties)
    if security.sasl is None:
        return RegistryProduct(settings, http)
    logins = BrokerLogins(target.addresses(), security, mechanism=security.sasl.mechanism)
    return RegistryProduct(settings, replace(http, authentication=True), logins)
