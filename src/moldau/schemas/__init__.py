"""What a schema is: parse, normal form, compatibility and payload checks of Avro, JSON Schema and Protobuf.

Pure: no registry, no subject, no socket. A format's code is imported when the first schema of that format is parsed.
"""

from moldau.schemas.checking import PayloadChecker, checker
from moldau.schemas.compatibility import CompatibilityLevel, Incompatibility, check_compatibility
from moldau.schemas.parsing import parse
from moldau.schemas.schema import InvalidSchema, ParsedSchema, Reference, SchemaType, normalized_references

__all__ = [
    "CompatibilityLevel",
    "Incompatibility",
    "InvalidSchema",
    "ParsedSchema",
    "PayloadChecker",
    "Reference",
    "SchemaType",
    "check_compatibility",
    "checker",
    "normalized_references",
    "parse",
]
