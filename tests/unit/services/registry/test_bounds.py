"""Bounds of the registry: parsed schemas that are kept, changes that wait, references that lead back."""

import asyncio
import json

import pytest

from moldau.client.admin.target import Target
from moldau.services.registry import node
from moldau.services.registry.core import parsing
from moldau.services.registry.core.decision import Decision
from moldau.services.registry.core.errors import Code, RegistryError
from moldau.services.registry.node import NodeSettings, RegistryNode
from support.services.core import CoreRegistry


def test_parsed_schemas_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "KEPT_SCHEMAS", 3)
    registry = CoreRegistry()
    for number in range(10):
        registry.register(f"s{number}", {"type": "record", "name": f"R{number}", "fields": []})
    assert len(registry.parser._kept) == 3


def test_parsed_schemas_are_kept_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "KEPT_BYTES", 100)
    registry = CoreRegistry()
    for number in range(10):
        registry.register(f"s{number}", {"type": "record", "name": f"R{number}", "fields": []})
    assert registry.parser._bytes <= 100
    assert registry.parser._bytes == sum(parsing._size(key) for key in registry.parser._kept)


def test_references_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MAX_REFERENCES", 2)
    registry = CoreRegistry()
    references = []
    for number in range(3):
        registry.register(f"s{number}", {"type": "record", "name": f"R{number}", "fields": []})
        references.append({"name": f"R{number}", "subject": f"s{number}", "version": 1})
    assert registry.register("many", "string", references=references) == 42201


def test_a_reference_that_leads_back_ends() -> None:
    """Only an import can make one; it must not hang whoever looks at it."""
    registry = CoreRegistry()
    registry.ask("PUT", "/mode", {"mode": "IMPORT"})
    text = json.dumps({"$ref": "s"})
    back = [{"name": "s", "subject": "s", "version": 1}]
    assert registry.register("s", text, schemaType="JSON", references=back, id=1, version=1) == 42201


def test_changes_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "WAITING_WRITES", 0)

    async def write() -> None:
        await RegistryNode(NodeSettings(Target("127.0.0.1:1"))).write(lambda *_: Decision(None))

    with pytest.raises(RegistryError) as refused:
        asyncio.run(write())
    assert refused.value.code is Code.OPERATION_TIMED_OUT
