"""ACLs as values, their filters and documents, and the decision over the index."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.acl_index import AclIndex
from moldau.security.acls import (
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    from_text,
    to_text,
)

ALICE, BOB, HERE, THERE = "User:alice", "User:bob", "10.0.0.1", "10.0.0.2"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
PREFIXED = PatternType.PREFIXED


def allow(operation: Operation, principal: str = ALICE, host: str = WILDCARD) -> AclEntry:
    return AclEntry(principal, host, operation, Permission.ALLOW)


def deny(operation: Operation, principal: str = ALICE, host: str = WILDCARD) -> AclEntry:
    return AclEntry(principal, host, operation, Permission.DENY)


def index(*acls: tuple[ResourcePattern, AclEntry], allow_everyone: bool = False) -> AclIndex:
    made = AclIndex(["User:admin"], allow_everyone=allow_everyone)
    for pattern, entry in acls:
        made.put(pattern, (*made.entries(pattern), entry))
    return made


def topic(name: str, pattern: PatternType = PatternType.LITERAL) -> ResourcePattern:
    return ResourcePattern(TOPIC, name, pattern)


def test_without_acls_only_super_users_may() -> None:
    assert index().allowed("User:admin", HERE, READ, TOPIC, "orders")
    assert not index().allowed(ALICE, HERE, READ, TOPIC, "orders")
    assert index(allow_everyone=True).allowed(ALICE, HERE, READ, TOPIC, "orders")


def test_a_super_user_may_what_is_denied() -> None:
    assert index((topic("*"), deny(Operation.ALL, "User:*"))).allowed("User:admin", HERE, READ, TOPIC, "orders")


def test_a_literal_acl_is_about_one_resource_of_one_type() -> None:
    acls = index((topic("orders"), allow(READ)))
    assert acls.allowed(ALICE, HERE, READ, TOPIC, "orders")
    assert not acls.allowed(BOB, HERE, READ, TOPIC, "orders")
    assert not acls.allowed(ALICE, HERE, WRITE, TOPIC, "orders")
    assert not acls.allowed(ALICE, HERE, READ, TOPIC, "orders2")
    assert not acls.allowed(ALICE, HERE, READ, GROUP, "orders")


def test_prefixes_nest() -> None:
    acls = index((topic("a", PREFIXED), allow(READ)), (topic("a.b", PREFIXED), allow(WRITE)))
    assert acls.allowed(ALICE, HERE, READ, TOPIC, "a.b.c")
    assert acls.allowed(ALICE, HERE, WRITE, TOPIC, "a.b.c")
    assert acls.allowed(ALICE, HERE, READ, TOPIC, "a.c")
    assert not acls.allowed(ALICE, HERE, WRITE, TOPIC, "a.c")
    assert not acls.allowed(ALICE, HERE, READ, TOPIC, "b")


def test_the_wildcard_is_about_all_resources_and_users() -> None:
    acls = index((topic("*"), allow(READ, "User:*")))
    assert acls.allowed(BOB, HERE, READ, TOPIC, "anything")
    assert not acls.allowed(BOB, HERE, READ, GROUP, "anything")


@pytest.mark.parametrize("denied", [topic("orders"), topic("ord", PREFIXED), topic("*")], ids=str)
def test_a_denial_wins_wherever_it_is(denied: ResourcePattern) -> None:
    acls = index((topic("orders"), allow(Operation.ALL)), (topic("*"), allow(READ)), (denied, deny(READ)))
    assert not acls.allowed(ALICE, HERE, READ, TOPIC, "orders")
    assert acls.allowed(ALICE, HERE, WRITE, TOPIC, "orders")


def test_hosts() -> None:
    acls = index((topic("orders"), allow(READ, host=HERE)), (topic("*"), deny(READ, host=THERE)))
    assert acls.allowed(ALICE, HERE, READ, TOPIC, "orders")
    assert not acls.allowed(ALICE, THERE, READ, TOPIC, "orders")


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_describe_is_implied_when_allowed_and_not_when_denied(operation: Operation) -> None:
    assert index((topic("t"), allow(operation))).allowed(ALICE, HERE, DESCRIBE, TOPIC, "t")
    acls = index((topic("t"), allow(DESCRIBE)), (topic("t"), deny(operation)))
    assert acls.allowed(ALICE, HERE, DESCRIBE, TOPIC, "t")


def test_alter_configs_implies_describe_configs_and_nothing_else() -> None:
    acls = index((topic("t"), allow(Operation.ALTER_CONFIGS)))
    assert acls.allowed(ALICE, HERE, Operation.DESCRIBE_CONFIGS, TOPIC, "t")
    assert not acls.allowed(ALICE, HERE, DESCRIBE, TOPIC, "t")


def test_everyone_is_allowed_only_where_no_acl_is() -> None:
    acls = index((topic("a", PREFIXED), allow(READ, BOB)), (topic("x"), allow(READ, BOB)), allow_everyone=True)
    assert not acls.allowed(ALICE, HERE, WRITE, TOPIC, "abc")
    assert not acls.allowed(ALICE, HERE, WRITE, TOPIC, "x")
    assert acls.allowed(ALICE, HERE, WRITE, TOPIC, "b")


def test_entries_that_are_gone_count_no_more() -> None:
    acls = index((topic("a", PREFIXED), allow(READ)), (topic("ab", PREFIXED), deny(READ)))
    assert not acls.allowed(ALICE, HERE, READ, TOPIC, "abc")
    acls.put(topic("ab", PREFIXED), ())
    assert acls.allowed(ALICE, HERE, READ, TOPIC, "abc")
    acls.put(topic("a", PREFIXED), ())
    assert not acls.allowed(ALICE, HERE, READ, TOPIC, "abc")
    assert len(acls) == 0


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([(topic("t"), allow(WRITE))], True),
        ([(topic("t"), allow(READ))], False),
        ([(topic("t"), allow(WRITE, host=THERE))], False),
        ([(topic("t"), allow(WRITE)), (topic("t"), deny(WRITE))], False),
        ([(topic("tea", PREFIXED), allow(WRITE)), (topic("te", PREFIXED), deny(Operation.ALL))], False),
        ([(topic("te", PREFIXED), allow(WRITE)), (topic("tea", PREFIXED), deny(WRITE))], True),
        ([(topic("*"), allow(WRITE)), (topic("t"), deny(WRITE))], True),
        ([(topic("t"), allow(WRITE)), (topic("*"), deny(WRITE))], False),
    ],
)
def test_a_right_on_any_resource(acls: list[tuple[ResourcePattern, AclEntry]], expected: bool) -> None:
    assert index(*acls).allowed_anywhere(ALICE, HERE, WRITE, TOPIC) is expected


def test_documents_are_those_of_kafka_on_zookeeper() -> None:
    entries = (allow(Operation.DESCRIBE_CONFIGS), deny(Operation.ALL, "User:*", HERE))
    text = to_text(entries)
    assert json.loads(text) == {
        "version": 1,
        "acls": [
            {"principal": ALICE, "permissionType": "Allow", "operation": "DescribeConfigs", "host": "*"},
            {"principal": "User:*", "permissionType": "Deny", "operation": "All", "host": HERE},
        ],
    }
    assert from_text(text) == entries


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"acls": [{"principal": "User:a"}]}', '{"acls": [{"operation": "Fly"}]}', '{"acls": 1}']
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"document|is none of|Expecting"):
        from_text(text)


def test_filters() -> None:
    binding = AclBinding(topic("ord", PREFIXED), allow(READ, host=HERE))
    wild = AclBinding(topic("*"), allow(READ))
    assert AclFilter().matches(binding)
    assert AclFilter(name="ord").matches(binding)
    assert not AclFilter(name="orders").matches(binding)
    assert AclFilter(name="orders", pattern=PatternType.MATCH).matches(binding)
    assert AclFilter(name="orders", pattern=PatternType.MATCH).matches(wild)
    assert not AclFilter(name="orders", pattern=PatternType.LITERAL).matches(wild)
    assert not AclFilter(resource=GROUP).matches(binding)
    assert not AclFilter(principal=BOB).matches(binding)
    assert not AclFilter(host="*").matches(binding)
    assert not AclFilter(operation=WRITE).matches(binding)
    assert not AclFilter(permission=Permission.DENY).matches(binding)


names = st.text(alphabet="ab*", min_size=1, max_size=4)
patterns = st.builds(
    ResourcePattern, st.sampled_from((TOPIC, GROUP)), names, st.sampled_from((PatternType.LITERAL, PREFIXED))
)
entries = st.builds(
    AclEntry,
    st.sampled_from((ALICE, BOB, "User:*")),
    st.sampled_from((WILDCARD, HERE)),
    st.sampled_from((READ, DESCRIBE, Operation.ALL)),
    st.sampled_from((Permission.ALLOW, Permission.DENY)),
)


@given(
    st.lists(st.tuples(patterns, st.lists(entries, max_size=3, unique=True)), max_size=12),
    names,
    st.sampled_from((READ, DESCRIBE)),
    st.sampled_from((HERE, THERE)),
    st.booleans(),
)
def test_the_index_decides_as_a_look_at_every_acl(
    puts: list[tuple[ResourcePattern, list[AclEntry]]], name: str, operation: Operation, host: str, everyone: bool
) -> None:
    acls = AclIndex(allow_everyone=everyone)
    for pattern, of in puts:
        acls.put(pattern, of)
    last = dict(puts)
    about = [
        entry
        for pattern, of in last.items()
        for entry in of
        if AclFilter(resource=TOPIC, name=name, pattern=PatternType.MATCH).matches_pattern(pattern)
    ]
    mine = [entry for entry in about if entry.principal in (ALICE, "User:*") and entry.host in (host, WILDCARD)]
    implying = {DESCRIBE: (DESCRIBE, READ, Operation.ALL), READ: (READ, Operation.ALL)}
    denied = any(e.permission is Permission.DENY and e.operation in (operation, Operation.ALL) for e in mine)
    allowed = any(e.permission is Permission.ALLOW and e.operation in implying[operation] for e in mine)
    expected = not denied and (allowed or (everyone and not about))
    assert acls.allowed(ALICE, host, operation, TOPIC, name) is expected
    assert sorted(acls.find(AclFilter())) == sorted(AclBinding(p, e) for p, of in last.items() for e in of)
