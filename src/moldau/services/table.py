"""The table of services: where each listens by default, and the class that is it. Loads none of them."""

from typing import Final, NamedTuple


class Service(NamedTuple):
    title: str  # as messages call it
    address: str  # by default
    module: str
    product: str  # in the module: a function of (Target, HttpSettings) that returns a `server.Product`


SERVICES: Final = {
    "registry": Service("schema registry", "localhost:8081", "moldau.services.registry.product", "registry"),
}
