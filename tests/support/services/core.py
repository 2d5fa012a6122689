"""The registry's core without a topic: every decision's records are applied at once."""

import json
from typing import Any
from urllib.parse import parse_qs

from moldau.services.registry.api.call import Call
from moldau.services.registry.api.table import Match, Read, Text, Write, find
from moldau.services.registry.core.errors import RegistryError
from moldau.services.registry.core.parsing import SchemaParser
from moldau.services.registry.core.records import Record, read_record, write_key, write_value
from moldau.services.registry.core.state import RegistryState


class CoreRegistry:
    """`ask("POST", "/subjects/s/versions", {...})` returns the answer, or the code of the error."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.parser = SchemaParser()
        self.written: list[tuple[bytes, bytes | None]] = []

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        path, _, query = target.partition("?")
        match = find(method, path)
        assert isinstance(match, Match), (target, match)
        call = Call(self.state, self.parser, match.path, parse_qs(query, keep_blank_values=True), body)
        does = match.endpoint.does
        try:
            if isinstance(does, Read | Text):
                return does.run(call)
            assert isinstance(does, Write)
            decision = does.run(call)
        except RegistryError as refused:
            return int(refused.code)
        for record in decision.records:
            self._write(record)
        return decision.answer

    def _write(self, record: Record) -> None:
        """Through bytes, as a record comes back from the topic."""
        key, value = write_key(record.key), write_value(record.value)
        self.written.append((key, value))
        self.state.apply(read_record(key, value))

    def register(self, subject: str, schema: object, query: str = "", **more: object) -> Any:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self.ask("POST", f"/subjects/{subject}/versions{query}", {"schema": text, **more})

    def replayed(self) -> "CoreRegistry":
        """Another registry that has read what this one wrote."""
        other = CoreRegistry()
        for key, value in self.written:
            other.state.apply(read_record(key, value))
        return other
