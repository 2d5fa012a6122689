"""Organisations: their names, their documents, and what one may see of the cluster."""

from uuid import UUID

import pytest

from moldau.base.session import Principal
from moldau.security.organisations import (
    Limits,
    MalformedOrganisation,
    Organisation,
    Role,
    ToCluster,
    ToOrganisation,
    from_json,
    member_of,
    product_of,
    to_json,
)
from moldau.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.names import renamed
from moldau.wire.primitives import ZERO_UUID

OWN, FOREIGN = UUID(int=1), UUID(int=2)
TO_CLUSTER, TO_ACME = ToCluster("acme", {OWN}.__contains__), ToOrganisation("acme", {OWN}.__contains__)


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
    assert acme.roles("alice", "lab") == {Role.ADMIN}
    assert acme.roles("bob", "lab") == frozenset()
    assert acme.roles("mallory", "shop") == frozenset()


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
