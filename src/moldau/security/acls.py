"""ACLs as values: operations, resources, patterns, entries and filters, as Kafka numbers and names them.

The texts are the documents of ACLs as Kafka kept them on ZooKeeper: one for each resource pattern.
"""

import json
from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple, Self

WILDCARD: Final = "*"  # any resource as a literal name, any host, any name of a principal
ANYONE: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"  # the only resource of type CLUSTER
VERSION: Final = 1  # of the documents


class _Named(IntEnum):
    """A number on the wire with two names: `DESCRIBE_CONFIGS` in commands, `DescribeConfigs` in texts."""

    @property
    def title(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def of_title(cls, text: str) -> Self:
        """The member with this name in either spelling; ValueError if there is none."""
        found = _by_name(cls).get(text.replace("_", "").replace("-", "").lower())
        if found is None:
            raise ValueError(f"{text!r} is none of {', '.join(member.title for member in cls)}")
        return cls(found)


@cache
def _by_name(of: type[_Named]) -> dict[str, int]:
    return {member.name.replace("_", "").lower(): int(member) for member in of}


class Operation(_Named):
    """Kafka's AclOperation: the numbers are those of ACLs and of authorized operations on the wire."""

    ANY = 1  # in filters only
    ALL = 2  # in ACLs only
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
    TWO_PHASE_COMMIT = 15


class ResourceType(_Named):
    """Kafka's ResourceType."""

    ANY = 1  # in filters only
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Named):
    """Kafka's PatternType."""

    ANY = 1  # in filters only
    MATCH = 2  # in filters only: every pattern that applies to a name
    LITERAL = 3
    PREFIXED = 4


class Permission(_Named):
    """Kafka's AclPermissionType."""

    ANY = 1  # in filters only
    DENY = 2
    ALLOW = 3


# The operations that a resource can be asked for, which Describe responses tell of (KIP-430).
SUPPORTED: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


def bit_field(operations: Iterable[Operation]) -> int:
    """Authorized operations as Describe responses carry them (KIP-430)."""
    return sum(1 << operation for operation in operations)


class ResourcePattern(NamedTuple):
    """The resources that an ACL is about: one, all with a prefix, or all of a type (a literal `*`)."""

    resource: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL


class AclEntry(NamedTuple):
    """A permission of a principal: `User:alice` or `User:*`, from one address or from `*`."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclBinding(NamedTuple):
    pattern: ResourcePattern
    entry: AclEntry


class AclFilter(NamedTuple):
    """A choice of ACLs. None and ANY: whatever it is."""

    resource: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, binding: AclBinding) -> bool:
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)

    def find(self, acls: Iterable[tuple[ResourcePattern, Iterable[AclEntry]]]) -> Iterator[AclBinding]:
        """The ACLs that match, of these patterns with their entries."""
        for pattern, entries in acls:
            if self.matches_pattern(pattern):
                yield from (AclBinding(pattern, entry) for entry in entries if self.matches_entry(entry))

    def matches_pattern(self, of: ResourcePattern) -> bool:
        if self.resource not in (ResourceType.ANY, of.resource):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, of.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is not PatternType.MATCH:
            return self.name == of.name
        if of.pattern is PatternType.PREFIXED:
            return self.name.startswith(of.name)
        return of.name in (self.name, WILDCARD)

    def matches_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


def to_text(entries: Iterable[AclEntry]) -> str:
    """The document of one resource pattern."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.title,
            "operation": entry.operation.title,
            "host": entry.host,
        }
        for entry in entries
    ]
    return json.dumps({"version": VERSION, "acls": acls}, ensure_ascii=False, separators=(",", ":"))


def from_text(text: str) -> tuple[AclEntry, ...]:
    """The entries of a document; ValueError if it is none."""
    try:
        return tuple(
            AclEntry(
                str(each["principal"]),
                str(each["host"]),
                Operation.of_title(each["operation"]),
                Permission.of_title(each["permissionType"]),
            )
            for each in json.loads(text)["acls"]
        )
    except (KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"not a document of ACLs: {problem!r}") from None
