"""A Protobuf schema as registries handle it: canonical .proto text, normal form, references by import."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moldau.schemas.protobuf.elements import MessageElement, Option
from moldau.schemas.protobuf.files import link
from moldau.schemas.protobuf.linking import ROOT, Linked, within
from moldau.schemas.protobuf.normal import normal_file
from moldau.schemas.protobuf.pool import build_pool
from moldau.schemas.protobuf.printing import print_file
from moldau.schemas.schema import InvalidSchema, SchemaType


@dataclass(frozen=True, slots=True, eq=False)
class ProtobufSchema:
    """A parsed .proto file with all that it imports."""

    text: str
    references: Mapping[str, str]
    linked: Linked

    @property
    def schema_type(self) -> SchemaType:
        return SchemaType.PROTOBUF

    @property
    def normalized(self) -> str:
        return print_file(normal_file(self.linked))

    @property
    def full_name(self) -> str | None:
        """The full name of the first message, or of the first enum if there is no message."""
        root = self.linked.root
        names = [message.name for message in root.messages[:1]] + [enum.name for enum in root.enums[:1]]
        return within(root.package, names[0]) if names else None

    def formatted(self, style: str) -> str:
        """`serialized` is a FileDescriptorProto in base64; `ignore_extensions` has no custom options."""
        match style:
            case "serialized":
                from moldau.schemas.protobuf.lowering import lower_file

                return base64.b64encode(lower_file(ROOT, self.linked).SerializeToString(deterministic=True)).decode()
            case "ignore_extensions":
                return print_file(self.linked.root, _not_custom)
        return self.text

    def message_at(self, indexes: Sequence[int]) -> str:
        """The full name of the message that clients mean by `indexes`, which stand in front of their payloads."""
        messages: tuple[MessageElement, ...] = self.linked.root.messages
        name = self.linked.root.package
        for index in indexes:
            if not 0 <= index < len(messages):
                raise InvalidSchema(f"the schema has no message at the indexes {list(indexes)}")
            name = within(name, messages[index].name)
            messages = messages[index].messages
        return name


def parse_protobuf(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    linked = link(text, references)
    build_pool(linked)
    return ProtobufSchema(print_file(linked.root), dict(references), linked)


def _not_custom(option: Option) -> bool:
    return not option.custom or option.name.startswith("(confluent.")
