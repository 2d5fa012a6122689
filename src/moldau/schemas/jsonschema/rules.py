"""The differences between two JSON Schemas, by the names that Confluent's registry gives them, and which break readers.

A content model is open if an object may have properties that the schema does not name, closed if it may not, and
partially open if they must fit a schema. The same goes for the items of an array.
"""

from moldau.schemas.rules import table

# Keywords that bound a value from above or from below, and the names of their rules.
UPPER_BOUNDS = {
    "maxLength": "MAX_LENGTH",
    "maximum": "MAXIMUM",
    "exclusiveMaximum": "EXCLUSIVE_MAXIMUM",
    "maxProperties": "MAX_PROPERTIES",
    "maxItems": "MAX_ITEMS",
    "maxContains": "MAX_CONTAINS",
}
LOWER_BOUNDS = {
    "minLength": "MIN_LENGTH",
    "minimum": "MINIMUM",
    "exclusiveMinimum": "EXCLUSIVE_MINIMUM",
    "minProperties": "MIN_PROPERTIES",
    "minItems": "MIN_ITEMS",
    "minContains": "MIN_CONTAINS",
}
BOUNDS = UPPER_BOUNDS | LOWER_BOUNDS

_CHANGES = {
    "ADDED": "{path}: the bound {update} is new",
    "REMOVED": "{path}: the bound {original} is gone",
    "INCREASED": "{path}: increased from {original} to {update}",
    "DECREASED": "{path}: decreased from {original} to {update}",
}


def _bounds(names: dict[str, str], *changes: str) -> dict[str, str]:
    return {f"{name}_{change}": _CHANGES[change] for name in names.values() for change in changes}


RULES = table(
    breaking={
        **_bounds(UPPER_BOUNDS, "ADDED", "DECREASED"),
        **_bounds(LOWER_BOUNDS, "ADDED", "INCREASED"),
        "SCHEMA_ADDED": "{path}: a schema is new where everything fitted",
        "TYPE_NARROWED": "{path}: the type number became integer",
        "TYPE_CHANGED": "{path}: the type changed from {original} to {update}",
        "PATTERN_ADDED": "{path}: the pattern {update} is new",
        "PATTERN_CHANGED": "{path}: the pattern changed from {original} to {update}",
        "MULTIPLE_OF_ADDED": "{path}: the factor {update} is new",
        "MULTIPLE_OF_EXPANDED": "{path}: the factor grew from {original} to its multiple {update}",
        "MULTIPLE_OF_CHANGED": "{path}: the factor changed from {original} to {update}",
        "REQUIRED_ATTRIBUTE_ADDED": "{path}: the property became required and has no default",
        "DEPENDENCY_ARRAY_ADDED": "{path}: the property now needs others",
        "DEPENDENCY_ARRAY_EXTENDED": "{path}: the property now needs more others",
        "DEPENDENCY_ARRAY_CHANGED": "{path}: the property now needs other properties",
        "DEPENDENCY_SCHEMA_ADDED": "{path}: the property now needs a schema to fit",
        "ADDITIONAL_PROPERTIES_REMOVED": "{path}: additional properties are no longer allowed",
        "ADDITIONAL_PROPERTIES_NARROWED": "{path}: additional properties must now fit a schema",
        "UNEVALUATED_PROPERTIES_REMOVED": "{path}: unevaluated properties are no longer allowed",
        "UNEVALUATED_PROPERTIES_NARROWED": "{path}: unevaluated properties must now fit a schema",
        "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "{path}: a required property is new where any property "
        "was allowed, so earlier data may lack it or have it with other content",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": "{path}: a property is new where any property "
        "was allowed, so earlier data may have it with other content",
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "{path}: a property is new where any property was allowed, "
        "so earlier data may have it with other content",
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "{path}: a required property is new and has no default",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": "{path}: the property is gone, and no other is allowed",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "{path}: the property is gone, and does not "
        "fit what others are allowed",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "{path}: the property is new, and does not "
        "take what was allowed there",
        "UNIQUE_ITEMS_ADDED": "{path}: items must now be unique",
        "ADDITIONAL_ITEMS_REMOVED": "{path}: additional items are no longer allowed",
        "ADDITIONAL_ITEMS_NARROWED": "{path}: additional items must now fit a schema",
        "UNEVALUATED_ITEMS_REMOVED": "{path}: unevaluated items are no longer allowed",
        "UNEVALUATED_ITEMS_NARROWED": "{path}: unevaluated items must now fit a schema",
        "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": "{path}: the item got a schema where any item was allowed",
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": "{path}: the item is gone, and no other is allowed",
        "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "{path}: the item is gone, and does not fit "
        "what others are allowed",
        "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "{path}: the item is new, and does not take what "
        "was allowed there",
        "ENUM_ARRAY_NARROWED": "{path}: values are gone: {values}",
        "ENUM_ARRAY_CHANGED": "{path}: values are gone: {values}",
        "COMBINED_TYPE_CHANGED": "{path}: {original} became {update}",
        "PRODUCT_TYPE_EXTENDED": "{path}: more schemas must fit",
        "SUM_TYPE_NARROWED": "{path}: fewer schemas may fit",
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED": "{path}: not every schema of {original} has a counterpart in {update}",
        "NOT_TYPE_EXTENDED": "{path}: more is excluded",
    },
    harmless={
        **_bounds(UPPER_BOUNDS, "REMOVED", "INCREASED"),
        **_bounds(LOWER_BOUNDS, "REMOVED", "DECREASED"),
        "ID_CHANGED": "{path}: the id changed",
        "DESCRIPTION_CHANGED": "{path}: the description changed",
        "TITLE_CHANGED": "{path}: the title changed",
        "DEFAULT_CHANGED": "{path}: the default changed",
        "SCHEMA_REMOVED": "{path}: the schema is gone, everything fits",
        "TYPE_EXTENDED": "{path}: the type integer became number",
        "PATTERN_REMOVED": "{path}: the pattern {original} is gone",
        "MULTIPLE_OF_REMOVED": "{path}: the factor {original} is gone",
        "MULTIPLE_OF_REDUCED": "{path}: the factor shrank from {original} to {update}, which divides it",
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED": "{path}: the property became required and has a default",
        "REQUIRED_ATTRIBUTE_REMOVED": "{path}: the property is no longer required",
        "DEPENDENCY_ARRAY_NARROWED": "{path}: the property needs fewer others",
        "DEPENDENCY_ARRAY_REMOVED": "{path}: the property needs no others",
        "DEPENDENCY_SCHEMA_REMOVED": "{path}: the property needs no schema to fit",
        "ADDITIONAL_PROPERTIES_ADDED": "{path}: additional properties are allowed",
        "ADDITIONAL_PROPERTIES_EXTENDED": "{path}: additional properties may be anything",
        "UNEVALUATED_PROPERTIES_ADDED": "{path}: unevaluated properties are allowed",
        "UNEVALUATED_PROPERTIES_EXTENDED": "{path}: unevaluated properties may be anything",
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL": "{path}: a property is new and may be anything",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL": "{path}: a required property is new and has "
        "a default",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "{path}: an optional property is new",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL": "{path}: a property that nothing fitted is gone",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL": "{path}: the property is gone, and any is allowed",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "{path}: the property is new, and takes what was "
        "allowed there",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "{path}: the property is gone, and fits what "
        "others are allowed",
        "UNIQUE_ITEMS_REMOVED": "{path}: items need not be unique",
        "ADDITIONAL_ITEMS_ADDED": "{path}: additional items are allowed",
        "ADDITIONAL_ITEMS_EXTENDED": "{path}: additional items may be anything",
        "UNEVALUATED_ITEMS_ADDED": "{path}: unevaluated items are allowed",
        "UNEVALUATED_ITEMS_EXTENDED": "{path}: unevaluated items may be anything",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL": "{path}: the item is new and may be anything",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL": "{path}: the item is new",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL": "{path}: an item that nothing fitted is gone",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL": "{path}: the item is gone, and any is allowed",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "{path}: the item is new, and takes what was allowed",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "{path}: the item is gone, and fits what others are "
        "allowed",
        "ENUM_ARRAY_EXTENDED": "{path}: values are new",
        "COMBINED_TYPE_EXTENDED": "{path}: {original} became {update}, which takes the same",
        "PRODUCT_TYPE_NARROWED": "{path}: fewer schemas must fit",
        "SUM_TYPE_EXTENDED": "{path}: more schemas may fit",
        "NOT_TYPE_NARROWED": "{path}: less is excluded",
    },
)
