"""One entry to the parsers of all formats. Imports a format's parser when it is first needed."""

from collections.abc import Mapping
from types import MappingProxyType

from moldau.schemas.schema import ParsedSchema, SchemaType, check_limits

NO_REFERENCES: Mapping[str, str] = MappingProxyType({})


def parse(schema_type: SchemaType, text: str, references: Mapping[str, str] = NO_REFERENCES) -> ParsedSchema:
    """Parse a schema, or raise InvalidSchema.

    `references` maps each name that the schema uses, directly or through others, to the text that defines it,
    in an order in which a text comes after those it needs.
    """
    check_limits(text, references)
    match schema_type:
        case SchemaType.AVRO:
            from moldau.schemas.avro.schema import parse_avro

            return parse_avro(text, references)
        case SchemaType.JSON:
            from moldau.schemas.jsonschema.schema import parse_json_schema

            return parse_json_schema(text, references)
        case SchemaType.PROTOBUF:
            from moldau.schemas.protobuf.schema import parse_protobuf

            return parse_protobuf(text, references)
