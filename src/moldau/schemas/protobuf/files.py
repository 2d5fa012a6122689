"""Files that a .proto text needs: those among its references, and those that registries know. Reads no disk."""

import base64
from collections.abc import Mapping

from moldau.schemas.protobuf.elements import FileElement
from moldau.schemas.protobuf.known import KNOWN_FILES, known_file
from moldau.schemas.protobuf.linking import ROOT, Linked
from moldau.schemas.protobuf.parsing import parse_file
from moldau.schemas.schema import MAX_NESTING, InvalidSchema


def link(text: str, references: Mapping[str, str]) -> Linked:
    """The file of a text with all it imports, checked."""
    files: dict[str, FileElement] = {}
    root = read_file(text)
    _load(root, references, files, ())
    linked = Linked({**files, ROOT: root})
    linked.check()
    return linked


def read_file(text: str) -> FileElement:
    """Elements of a .proto text, or of a FileDescriptorProto in base64."""
    descriptor = _descriptor_bytes(text)
    if descriptor is None:
        return parse_file(text)
    from moldau.schemas.protobuf.lifting import lift_file

    return lift_file(descriptor)


def _descriptor_bytes(text: str) -> bytes | None:
    packed = "".join(text.split())
    if not packed or "{" in packed or ";" in packed:
        return None
    try:
        return base64.b64decode(packed, validate=True)
    except ValueError:  # not base64: a .proto text, or nothing that anybody knows
        return None


def _load(
    file: FileElement, references: Mapping[str, str], files: dict[str, FileElement], importers: tuple[str, ...]
) -> None:
    for name in (*file.imports, *file.public_imports):
        if len(importers) >= MAX_NESTING:
            raise InvalidSchema(f"imports are nested deeper than {MAX_NESTING}")
        if name in importers:
            raise InvalidSchema(f"{name} imports itself by way of {' and '.join(importers)}")
        if name in files:
            continue
        if name in references:
            try:
                imported = read_file(references[name])
            except InvalidSchema as error:
                raise InvalidSchema(f"import {name}: {error}") from None
        elif name in KNOWN_FILES:
            imported = known_file(name)
        else:
            raise InvalidSchema(f"the import {name} is not among the references")
        _load(imported, references, files, (*importers, name))
        files[name] = imported
