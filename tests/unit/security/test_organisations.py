"""Organisations: their names, their documents, and what one may see of the cluster."""

from uuid import UUID

import pytest
import re2

from moldau.base.session import Principal
from moldau.groups.consumer.regex import check
from moldau.security.acls import CLUSTER_NAME, Operation, ResourceType
from moldau.security.organisation_names import OrganisationNames, ToCluster, ToOrganisation
from moldau.security.organisation_roles import RoleIndex
from moldau.security.organisations import (
    Limits,
    MalformedOrganisation,
    Organisation,
    Role,
    from_json,
    member_of,
    problem_of,
    product_of,
    to_json,
)
from moldau.wire.declare import NAME_PATTERN
from moldau.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.names import renamed
from moldau.wire.primitives import ZERO_UUID

OWN, FOREIGN = UUID(int=1), UUID(int=2)
NAMES = OrganisationNames("acme", {OWN}.__contains__, lambda pattern: check(pattern) is None)
TO_CLUSTER, TO_ACME = ToCluster(NAMES), ToOrganisation(NAMES)


def test_requests_get_the_names_of_the_cluster() -> None:
    rows = (
        MetadataRequestTopic(name="shop.orders"),
        MetadataRequestTopic(topic_id=OWN, name=None),
        MetadataRequestTopic(topic_id=FOREIGN, name=None),
    )
    request = renamed(MetadataRequest(topics=rows), TO_CLUSTER)
    assert request is not None
    assert request.topics is not None
    named, own, foreign = request.topics
    assert named.name == "acme.shop.orders"
    assert (own.topic_id, own.name) == (OWN, None)
    assert foreign.topic_id not in (OWN, FOREIGN), "a topic id of others is unknown"
    assert TO_ACME.topic_id(foreign.topic_id) == FOREIGN, "and the response has it as it was asked for"
    assert TO_CLUSTER.topic_id(ZERO_UUID) == TO_ACME.topic_id(ZERO_UUID) == ZERO_UUID


def test_responses_have_nothing_of_others() -> None:
    groups = tuple(ListedGroup(group_id=name) for name in ("acme.billing", "globex.billing", "acmes", "billing"))
    found = renamed(ListGroupsResponse(groups=groups), TO_ACME)
    assert found == ListGroupsResponse(groups=(ListedGroup(group_id="billing"),))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Topic 'acme.shop.orders' already exists.", "Topic 'shop.orders' already exists."),
        ("acme.shop.a, acme.shop.b", "shop.a, shop.b"),
        ("not-acme.shop and x.acme.shop stay", "not-acme.shop and x.acme.shop stay"),
    ],
)
def test_texts_for_people_mention_the_organisations_own_names(text: str, shown: str) -> None:
    assert TO_ACME.text(text) == shown


def test_an_organisation_is_read_as_it_was_written() -> None:
    acme = Organisation(
        "acme",
        Limits(connections=10),
        {"shop": Limits(partitions=200, retention_ms=5, bytes_in=10_000_000), "lab": Limits()},
        {"alice": {"*": Role.ADMIN}, "bob": {"shop": Role.READER}},
    )
    assert from_json("acme", to_json(acme)) == acme
    assert problem_of(acme) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"limits":{"x":1},"products":{},"members":{}}', '{"limits":{},"products":{},"members":{"a":1}}'],
)
def test_a_damaged_document_is_named(text: str) -> None:
    with pytest.raises(MalformedOrganisation, match="organisation acme"):
        from_json("acme", text)


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("acme/alice", ("acme", "alice")),
        ("acme/a/b", ("acme", "a/b")),
        ("alice", None),
        ("/alice", None),
        ("Acme/alice", None),
        ("a.b/alice", None),
    ],
)
def test_members_are_known_by_their_name(name: str, member: tuple[str, str] | None) -> None:
    assert member_of(Principal("User", name)) == member


def test_the_product_is_the_first_part_of_a_topics_name() -> None:
    assert product_of("shop.orders.eu") == "shop"
    assert product_of("orders") == "orders"


# ── regular expressions ──


@pytest.mark.parametrize(
    ("pattern", "own", "others"),
    [
        (r"shop\..*", ["shop.orders"], ["lab.x", "orders"]),
        (r"^shop\.orders$", ["shop.orders"], ["shop.orders2"]),
        (r"^shop|^lab", ["shop", "lab"], ["shop.orders"]),
        (r"\Ashop.*\z", ["shop.orders"], ["lab"]),
        (r"[^s].*", ["lab"], ["shop"]),
        (r"[]^].*|(?i)SHOP", ["shop", "^x"], ["lab"]),
        (r"shop\^?", ["shop"], ["lab"]),
        (r".*", ["shop.orders", "lab"], []),
    ],
)
def test_a_pattern_matches_own_names_only(pattern: str, own: list[str], others: list[str]) -> None:
    compiled = re2.compile(TO_CLUSTER.name(NAME_PATTERN, pattern))
    assert [name for name in own if compiled.fullmatch(f"acme.{name}")] == own
    assert [name for name in others if compiled.fullmatch(f"acme.{name}")] == []
    everybody = [*own, *others, *(f"globex.{name}" for name in own), "acme", "acmex.shop"]
    assert [name for name in everybody if compiled.fullmatch(name)] == []


def test_a_pattern_cannot_break_out() -> None:
    """In brackets it would be valid, and match everything."""
    assert TO_CLUSTER.name(NAME_PATTERN, "a)|(.*") == "a)|(.*"
    assert check("a)|(.*") is not None


def test_a_pattern_is_told_as_it_was_given() -> None:
    assert TO_ACME.name(NAME_PATTERN, TO_CLUSTER.name(NAME_PATTERN, r"shop\..*")) == r"shop\..*"
    assert TO_CLUSTER.name(NAME_PATTERN, "") == ""


# ── roles ──

ACME = Organisation(
    "acme",
    products={"shop": Limits(), "lab": Limits()},
    members={
        "root": {"*": Role.ADMIN},
        "writer": {"shop": Role.WRITER},
        "reader": {"shop": Role.READER, "lab": Role.ADMIN},
        "nobody": {},
    },
)
TOPIC, GROUP, ID, CLUSTER = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)


@pytest.mark.parametrize(
    ("user", "operation", "resource", "name", "allowed"),
    [
        ("root", Operation.CREATE, TOPIC, "acme.shop.orders", True),
        ("root", Operation.CREATE, TOPIC, "acme.orders", True),
        ("root", Operation.CREATE, TOPIC, "globex.shop.orders", False),
        ("root", Operation.DESCRIBE, TOPIC, "acmes.shop", False),
        ("root", Operation.DESCRIBE, TOPIC, "orders", False),
        ("root", Operation.DESCRIBE, CLUSTER, CLUSTER_NAME, False),
        ("root", Operation.ALTER, CLUSTER, CLUSTER_NAME, False),
        ("root", Operation.CREATE, CLUSTER, CLUSTER_NAME, False),
        ("root", Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME, False),
        ("root", Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME, True),
        ("writer", Operation.WRITE, TOPIC, "acme.shop.orders", True),
        ("writer", Operation.READ, TOPIC, "acme.shop.orders", True),
        ("writer", Operation.ALTER_CONFIGS, TOPIC, "acme.shop.orders", False),
        ("writer", Operation.WRITE, TOPIC, "acme.lab.x", False),
        ("writer", Operation.WRITE, ID, "acme.any", True),
        ("writer", Operation.WRITE, ID, "acme.lab.id", False),
        ("writer", Operation.WRITE, ID, "globex.any", False),
        ("reader", Operation.READ, TOPIC, "acme.shop.orders", True),
        ("reader", Operation.WRITE, TOPIC, "acme.shop.orders", False),
        ("reader", Operation.DELETE, TOPIC, "acme.lab.x", True),
        ("reader", Operation.DELETE, GROUP, "acme.shop.readers", False),
        ("reader", Operation.DELETE, GROUP, "acme.lab.readers", True),
        ("nobody", Operation.READ, GROUP, "acme.any", False),
        ("stranger", Operation.DESCRIBE, TOPIC, "acme.shop.orders", False),
    ],
)
def test_what_roles_allow(user: str, operation: Operation, resource: ResourceType, name: str, allowed: bool) -> None:
    index = RoleIndex(ACME, user)
    assert index.allowed(f"User:acme/{user}", "127.0.0.1", operation, resource, name) is allowed


@pytest.mark.parametrize(
    ("organisation", "words"),
    [
        (Organisation("acme", products={"Shop": Limits()}), "lower-case letters"),
        (Organisation("acme", products={"a.b": Limits()}), "lower-case letters"),
        (Organisation("acme", Limits(partitions=-1)), "partitions"),
        (Organisation("acme", Limits(bytes_in="1")), "bytes_in"),  # type: ignore[arg-type]
        (Organisation("acme", products={"shop": Limits(connections=1)}), "no product"),
        (Organisation("acme", members={"alice": {"shop": Role.READER}}), "does not exist"),
        (Organisation("acme", members={"": {}}), "needs a name"),
    ],
)
def test_what_an_organisation_cannot_be(organisation: Organisation, words: str) -> None:
    assert words in (problem_of(organisation) or "")
