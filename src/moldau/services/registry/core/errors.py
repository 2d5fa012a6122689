"""RegistryError: an expected failure with Confluent's error code, whose first three digits are the HTTP status."""

from enum import IntEnum


class Code(IntEnum):
    """Codes of the registry's interface."""

    SUBJECT_NOT_FOUND = 40401
    VERSION_NOT_FOUND = 40402
    SCHEMA_NOT_FOUND = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    NO_SUBJECT_CONFIG = 40408
    NO_SUBJECT_MODE = 40409
    FORBIDDEN = 40301
    INCOMPATIBLE_SCHEMA = 40901
    INVALID_SCHEMA = 42201
    INVALID_VERSION = 42202
    INVALID_COMPATIBILITY_LEVEL = 42203
    INVALID_MODE = 42204
    OPERATION_NOT_PERMITTED = 42205
    REFERENCE_EXISTS = 42206
    ID_DOES_NOT_MATCH = 42207
    INVALID_SUBJECT = 42208
    SCHEMA_TOO_LARGE = 42209
    INVALID_RULE_SET = 42210
    CONTEXT_NOT_EMPTY = 42211
    STORE_ERROR = 50001
    OPERATION_TIMED_OUT = 50002
    FORWARDING_FAILED = 50003
    UNKNOWN_LEADER = 50004


class RegistryError(Exception):
    """The message says what happened, to what, and what to do."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code // 100


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(Code.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(Code.VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(name: object = "") -> RegistryError:
    return RegistryError(Code.SCHEMA_NOT_FOUND, f"Schema {name} not found" if name != "" else "Schema not found")


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(Code.INVALID_SCHEMA, f"Invalid schema: {reason}")


def not_permitted(message: str) -> RegistryError:
    return RegistryError(Code.OPERATION_NOT_PERMITTED, message)
