"""Wanted: what a service process shall run, as JSON between `supervisor` and `process`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Wanted:
    """The cluster with its client properties, and the address of each service by its name."""

    bootstrap: str
    properties: Mapping[str, str]
    addresses: Mapping[str, str]

    def to_json(self) -> str:
        return json.dumps(asdict(self))
