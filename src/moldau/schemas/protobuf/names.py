"""Names that Protobuf derives: of types, of fields in JSON, of entries of maps."""

from functools import cache


@cache
def type_names() -> dict[int, str]:
    """Scalar types by their number in descriptors."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}


def json_name(name: str) -> str:
    """user_id becomes userId."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def entry_name(name: str) -> str:
    """user_ids becomes UserIdsEntry: the message of one entry of a map."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
