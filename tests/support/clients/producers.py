"""Producers of a test, closed at its end without looking at what failed."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from moldau.client.errors import DeliveryFailed
from moldau.client.producer.producer import Producer

NewProducer: TypeAlias = Callable[..., Producer[Any, Any]]


@contextlib.contextmanager
def producers(default: str, **common: Any) -> Iterator[NewProducer]:
    """Makes producers, on this cluster unless another one is named."""
    made: list[Producer[Any, Any]] = []

    def new(bootstrap: str = default, **settings: Any) -> Producer[Any, Any]:
        made.append(Producer(bootstrap, **common, **settings))
        return made[-1]

    yield new
    for producer in made:
        with contextlib.suppress(DeliveryFailed):
            producer.close(0)
