"""The process of all services: `python -m moldau.services.process`, started by `supervisor`.

Its first line on stdin is a `Wanted` as JSON, because properties may have passwords, which arguments would show. It
writes one JSON line for each service that listens and for each that cannot. When stdin closes, its parent is gone, and
it stops.
"""

import importlib
import json
import os
import signal
import sys
import threading
from typing import Final

from moldau.client.admin.errors import AdminError
from moldau.client.admin.target import Target
from moldau.services.http.server import Product, run, set_up_logging
from moldau.services.http.settings import HttpSettings, read_address
from moldau.services.table import SERVICES
from moldau.services.wanted import Wanted

NONE_LISTENS: Final = 3  # exit code: starting again would not help
PARENT_READ: Final = 4096


def build(name: str, target: Target, settings: HttpSettings) -> Product:
    service = SERVICES[name]
    product: Product = getattr(importlib.import_module(service.module), service.product)(target, settings)
    return product


def main() -> int:
    line = sys.stdin.buffer.readline()
    if not line:  # the parent has ended meanwhile
        return 0
    wanted = Wanted(**json.loads(line))
    set_up_logging()
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    target = Target(wanted.bootstrap, wanted.properties)
    products = []
    for name, address in wanted.addresses.items():
        try:
            products.append(build(name, target, HttpSettings(read_address(address))))
        except AdminError as problem:  # client properties that a service cannot use
            tell(problem=f"The {SERVICES[name].title} does not start: {problem}")
    listened = run(products, lambda name, url: tell(service=name, url=url), lambda problem: tell(problem=problem))
    return 0 if listened else NONE_LISTENS


def tell(**line: str) -> None:
    print(json.dumps(line), flush=True)


def _stop_with_parent() -> None:
    # Unbuffered: a daemon thread would hold the buffer's lock while the interpreter exits.
    while os.read(0, PARENT_READ):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
