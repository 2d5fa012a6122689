"""Permissions for each API: operations on resources, in Kafka's terms. Nothing is enforced yet."""

from enum import IntEnum
from typing import NamedTuple


class Operation(IntEnum):
    """Kafka's AclOperation: the numbers are those of ACLs and of authorized operations on the wire."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ResourceType(IntEnum):
    """Kafka's ResourceType."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Need(NamedTuple):
    operation: Operation
    resource: ResourceType
    when: str = ""  # which requests need it, or what may stand in for it; "" for all

    def __str__(self) -> str:
        words = (self.operation.name, self.resource.name)
        operation, resource = ("".join(part.title() for part in word.split("_")) for word in words)
        return f"{operation} on {resource}" + (f" ({self.when})" if self.when else "")


def bit_field(*operations: Operation) -> int:
    """Authorized operations as Describe responses carry them (KIP-430)."""
    return sum(1 << operation for operation in operations)
