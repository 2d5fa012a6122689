"""Fixtures for tests of HTTP services: registries on the shared broker, each test with a topic of its own."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.brokers.processes import AnyBroker
from support.services.registry import RegistryProcess

StartRegistry = Callable[..., RegistryProcess]


@pytest.fixture
def start_registry(broker: AnyBroker, tmp_path: Path) -> Iterator[StartRegistry]:
    """`start_registry()`: a registry; several in one test are nodes of the same registry unless named otherwise."""
    started: list[RegistryProcess] = []
    own = uuid.uuid4().hex[:8]

    def start(*options: str, name: str = own, ready: bool = True) -> RegistryProcess:
        registry = RegistryProcess(tmp_path, broker.bootstrap, name, *options)
        started.append(registry)
        return registry.start(ready=ready)

    yield start
    for registry in started:
        registry.stop()


@pytest.fixture(scope="module")
def registry(broker: AnyBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    """One registry for the tests of a file; each uses subjects of its own."""
    process = RegistryProcess(tmp_path_factory.mktemp("registry"), broker.bootstrap, uuid.uuid4().hex[:8]).start()
    yield process
    process.stop()


@pytest.fixture
def subject() -> str:
    """A subject that no other test uses."""
    return f"{uuid.uuid4().hex[:8]}-value"
