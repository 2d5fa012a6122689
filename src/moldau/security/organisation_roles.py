"""Roles in organisations: what a member may do with the cluster's resources, decided without ACLs.

Each role includes the one before it. A role is given for a product, whose topics begin with its name, or for all.
Groups and transactional ids that begin with the name of a product belong to it; others are everybody's in the
organisation. On the cluster itself a member has no rights but to write idempotently.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from moldau.security.acls import Operation, ResourceType
from moldau.security.organisations import ALL_PRODUCTS, Organisation, Role, product_of

_READER: Final = {
    ResourceType.TOPIC: {Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.READ},
    ResourceType.GROUP: {Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.READ},
}
_WRITER: Final = {
    ResourceType.TOPIC: {*_READER[ResourceType.TOPIC], Operation.WRITE},
    ResourceType.GROUP: _READER[ResourceType.GROUP],
    ResourceType.TRANSACTIONAL_ID: {Operation.DESCRIBE, Operation.WRITE},
    ResourceType.CLUSTER: {Operation.IDEMPOTENT_WRITE},
}
_CHANGES: Final = {Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CREATE, Operation.DELETE}
_ADMIN: Final = {
    **_WRITER,
    ResourceType.TOPIC: _WRITER[ResourceType.TOPIC] | _CHANGES,
    ResourceType.GROUP: _WRITER[ResourceType.GROUP] | {Operation.ALTER_CONFIGS, Operation.DELETE},
}
OPERATIONS: Final[Mapping[Role, Mapping[ResourceType, set[Operation]]]] = {
    Role.READER: _READER,
    Role.WRITER: _WRITER,
    Role.ADMIN: _ADMIN,
}


class RoleIndex:
    """The rights of one member: asked as an index of ACLs is, with the cluster's names."""

    def __init__(self, organisation: Organisation, user: str) -> None:
        self._prefix = organisation.prefix
        self._products = frozenset(organisation.products)
        self._roles = organisation.members.get(user, {})

    def allowed(self, user: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        return _grant(self._roles_for(resource, name), operation, resource)

    def allowed_anywhere(self, user: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        return _grant(self._roles.values(), operation, resource)

    def _roles_for(self, resource: ResourceType, name: str) -> Iterable[Role]:
        if resource is ResourceType.CLUSTER:
            return self._roles.values()
        if not name.startswith(self._prefix):
            return ()
        product = product_of(name[len(self._prefix) :])
        if product not in self._products and resource is not ResourceType.TOPIC:
            return self._roles.values()
        return [self._roles[each] for each in (product, ALL_PRODUCTS) if each in self._roles]


def _grant(roles: Iterable[Role], operation: Operation, resource: ResourceType) -> bool:
    return any(operation in OPERATIONS[role].get(resource, ()) for role in roles)
