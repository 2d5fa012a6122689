"""Index of ACLs, and the decision whether a principal may do something: the rules of Kafka's StandardAuthorizer.

A super user may do everything. Else an ACL that denies wins over those that allow, wherever it is written: for the
resource, for a prefix of its name, or for all resources of the type. Without an ACL that allows, nothing is allowed,
unless `allow_everyone` is set and no ACL of any principal is about the resource.

The entries are kept by principal as bit fields of operations, so that a decision costs a few look-ups in dictionaries,
however many ACLs there are.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from moldau.security.acls import (
    ANYONE,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

PROBE: Final = "hardcode"  # the name that Kafka asks about first where any resource of a type will do

_EVERY: Final = sum(1 << operation for operation in Operation if operation > Operation.ALL)
_IMPLIED: Final = {
    **dict.fromkeys((Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER), 1 << Operation.DESCRIBE),
    Operation.ALTER_CONFIGS: 1 << Operation.DESCRIBE_CONFIGS,
}


class _Rights:
    """What one principal is allowed and denied: from all hosts, and from single ones."""

    __slots__ = ("allow", "deny", "hosts")

    def __init__(self) -> None:
        self.allow = self.deny = 0
        self.hosts: dict[str, tuple[int, int]] | None = None

    def add(self, entry: AclEntry) -> None:
        allow, deny = _bits(entry)
        if entry.host == WILDCARD:
            self.allow |= allow
            self.deny |= deny
        else:
            self._add_host(entry.host, allow, deny)

    def join(self, other: "_Rights") -> None:
        self.allow |= other.allow
        self.deny |= other.deny
        for host, (allow, deny) in (other.hosts or {}).items():
            self._add_host(host, allow, deny)

    def _add_host(self, host: str, allow: int, deny: int) -> None:
        if self.hosts is None:
            self.hosts = {}
        known = self.hosts.get(host, (0, 0))
        self.hosts[host] = (known[0] | allow, known[1] | deny)


class _Prefixes:
    """The longest of many prefixes that a name has, by one binary search.

    The greatest prefix that is not behind the name in alphabetical order begins with every prefix of the name: the
    one sought is it, or one that it begins with in turn.
    """

    __slots__ = ("_order", "_outer", "_rights")

    def __init__(self, rights: Mapping[str, _Rights]) -> None:
        self._order = sorted(rights)
        self._outer: list[int] = []  # the place of the next shorter prefix of each, or -1
        self._rights: list[_Rights] = []  # of each prefix, with those of all shorter ones
        for place, prefix in enumerate(self._order):
            outer = place - 1
            while outer >= 0 and not prefix.startswith(self._order[outer]):
                outer = self._outer[outer]
            joined = rights[prefix]
            if outer >= 0:
                joined = _Rights()
                joined.join(rights[prefix])
                joined.join(self._rights[outer])
            self._outer.append(outer)
            self._rights.append(joined)

    def find(self, name: str) -> _Rights | None:
        order = self._order
        place = bisect_right(order, name) - 1
        while place >= 0 and not name.startswith(order[place]):
            place = self._outer[place]
        return self._rights[place] if place >= 0 else None


class _Grants:
    """The patterns that name one principal, for one resource type."""

    __slots__ = ("_sought", "literals", "prefixes")

    def __init__(self) -> None:
        self.literals: dict[str, _Rights] = {}
        self.prefixes: dict[str, _Rights] = {}
        self._sought: _Prefixes | None = None

    def put(self, pattern: ResourcePattern, rights: _Rights | None) -> None:
        if pattern.pattern is PatternType.LITERAL:
            named = self.literals
        else:
            named, self._sought = self.prefixes, None
        if rights is not None:
            named[pattern.name] = rights
        else:
            named.pop(pattern.name, None)

    def by_prefix(self, name: str) -> _Rights | None:
        if not self.prefixes:
            return None
        if self._sought is None:  # made again after changes, which are rare
            self._sought = _Prefixes(self.prefixes)
        return self._sought.find(name)


class AclIndex:
    """`put` replaces the ACLs of a pattern; all else reads."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._entries: dict[ResourcePattern, tuple[AclEntry, ...]] = {}
        self._patterns = [_Grants() for _ in range(max(ResourceType) + 1)]  # of all principals, by type
        self._grants: list[dict[str, _Grants]] = [{} for _ in range(max(ResourceType) + 1)]  # by type and principal

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def put(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Replace all ACLs of a pattern; without entries it has none."""
        before, after = self._entries.get(pattern, ()), tuple(entries)
        grants = self._grants[pattern.resource]
        for principal in {entry.principal for entry in (*before, *after)}:
            known = grants.setdefault(principal, _Grants())
            known.put(pattern, _rights_of(principal, after))
            if not known.literals and not known.prefixes:
                del grants[principal]
        self._patterns[pattern.resource].put(pattern, _Rights() if after else None)
        if after:
            self._entries[pattern] = after
        else:
            self._entries.pop(pattern, None)

    def find(self, wanted: AclFilter) -> Iterator[AclBinding]:
        return wanted.find(self._entries.items())

    def entries(self, pattern: ResourcePattern) -> tuple[AclEntry, ...]:
        return self._entries.get(pattern, ())

    def allowed(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Whether the principal may do this, from this host."""
        if principal in self._super_users:
            return True
        allow = deny = 0
        grants = self._grants[resource]
        for user in (principal, ANYONE):
            known = grants.get(user)
            if known is None:
                continue
            for rights in (known.literals.get(name), known.literals.get(WILDCARD), known.by_prefix(name)):
                if rights is not None:
                    allow |= rights.allow
                    deny |= rights.deny
                    if rights.hosts is not None and host in rights.hosts:
                        here = rights.hosts[host]
                        allow |= here[0]
                        deny |= here[1]
        bit = 1 << operation
        if deny & bit:
            return False
        return bool(allow & bit) or (self._allow_everyone and not self._concerned(resource, name))

    def allowed_anywhere(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """Whether the principal may do this to any resource of the type: an idempotent producer may write somewhere.

        A resource that is allowed and denied by patterns of other forms counts, as in Kafka: nobody enumerates names.
        """
        if self.allowed(principal, host, operation, resource, PROBE):
            return True
        allowed: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        for pattern, entry in self.find(AclFilter(resource=resource)):
            if entry.principal not in (principal, ANYONE) or entry.host not in (host, WILDCARD):
                continue
            if entry.operation not in (operation, Operation.ALL):
                continue
            if entry.permission is Permission.ALLOW:
                allowed.append(pattern)
            else:
                denied.add(pattern)
        if ResourcePattern(resource, WILDCARD) in denied:
            return False
        return any(not _dominated(pattern, denied) for pattern in allowed)

    def _concerned(self, resource: ResourceType, name: str) -> bool:
        """Whether any ACL, of whatever principal, is about the resource."""
        known = self._patterns[resource]
        return name in known.literals or WILDCARD in known.literals or known.by_prefix(name) is not None


def _rights_of(principal: str, entries: Iterable[AclEntry]) -> _Rights | None:
    own = [entry for entry in entries if entry.principal == principal]
    if not own:
        return None
    rights = _Rights()
    for entry in own:
        rights.add(entry)
    return rights


def _bits(entry: AclEntry) -> tuple[int, int]:
    """The operations that an entry allows, with those implied, and those that it denies."""
    operations = _EVERY if entry.operation is Operation.ALL else 1 << entry.operation
    if entry.permission is Permission.DENY:
        return 0, operations
    return operations | _IMPLIED.get(entry.operation, 0), 0


def _dominated(pattern: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    """Whether everything that the pattern allows is denied by one other pattern."""
    if pattern.name == WILDCARD and pattern.pattern is PatternType.LITERAL:
        return False
    if pattern.pattern is PatternType.LITERAL and pattern in denied:
        return True
    prefixes = (pattern.name[: size + 1] for size in range(len(pattern.name)))
    return any(ResourcePattern(pattern.resource, prefix, PatternType.PREFIXED) in denied for prefix in prefixes)
