"""Limits of organisations: partitions and retention of topics, bytes per second, bytes stored, connections."""

from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.session import Principal, SecurityProtocol, Session
from moldau.broker.organisations.directory import Directory, OrganisationReader
from moldau.broker.organisations.policy import TopicPolicy
from moldau.broker.organisations.storage import FRESH_S, Storage
from moldau.broker.organisations.traffic import TrafficTable
from moldau.broker.quotas import unlimited_meter
from moldau.broker.security.denials import Denials
from moldau.broker.settings import load
from moldau.metadata.changes import DocumentsChanged, TopicCreated, apply
from moldau.metadata.image import ClusterImage, PartitionState
from moldau.net.reply import BadRequest
from moldau.security.organisations import Limits, Organisation, Role, path_of, to_json

CONFIG, _ = load({})
DAY_MS = 86_400_000


def image_of(*organisations: Organisation, topics: dict[str, int] | None = None) -> ClusterImage:
    image = apply(ClusterImage(), DocumentsChanged({path_of(each.name): to_json(each) for each in organisations}))
    for name, count in (topics or {}).items():
        image = apply(image, created(name, count))
    return image


def created(name: str, partitions: int, **config: str) -> TopicCreated:
    states = tuple(PartitionState(index, (1,), (1,), 1) for index in range(partitions))
    named = {key.replace("_", "."): value for key, value in config.items()}
    return TopicCreated(name, uuid5(NAMESPACE_DNS, name), states, named)


ACME = Organisation(
    "acme",
    Limits(partitions=10, retention_ms=30 * DAY_MS),
    {"shop": Limits(partitions=4, retention_ms=DAY_MS), "lab": Limits()},
    {"alice": {"*": Role.ADMIN}},
)


@pytest.fixture
def policy() -> TopicPolicy:
    return TopicPolicy(lambda: CONFIG, OrganisationReader())


def words_of(outcome: object) -> str:
    assert isinstance(outcome, Refusal)
    assert outcome.error is WireError.POLICY_VIOLATION
    assert outcome.message is not None
    return outcome.message


def test_partitions_of_product_and_organisation(policy: TopicPolicy) -> None:
    image = image_of(ACME, topics={"acme.shop.a": 3, "acme.lab.b": 5, "acmes.shop.c": 50})
    assert isinstance(policy.creating(image, created("acme.shop.d", 1)), TopicCreated)
    assert "Product acme/shop may have 4 partitions: it has 3" in words_of(
        policy.creating(image, created("acme.shop.d", 2))
    )
    assert "organisation acme may have 10" in words_of(policy.creating(image, created("acme.lab.d", 3))).lower()
    assert policy.growing(image, "acme.lab.b", 2) is None
    assert "3 more" in words_of(policy.growing(image, "acme.lab.b", 3))
    assert policy.growing(image, "acmes.shop.c", 1000) is None


def test_a_topic_belongs_to_a_product(policy: TopicPolicy) -> None:
    image = image_of(ACME)
    assert "one of its products (lab, shop)" in words_of(policy.creating(image, created("acme.orders", 1)))
    assert "one of its products (lab, shop)" in words_of(policy.creating(image, created("acme.x.y", 1)))
    assert isinstance(policy.creating(image, created("orders", 1)), TopicCreated)


@pytest.mark.parametrize(
    ("topic", "asked", "kept"),
    [
        ("acme.shop.a", None, str(DAY_MS)),  # the broker's default of seven days is too long
        ("acme.lab.a", None, None),
        ("acme.shop.a", "1000", "1000"),
        ("acme.shop.a", "-1", Refusal),
        ("acme.shop.a", str(DAY_MS + 1), Refusal),
        ("acme.lab.a", str(30 * DAY_MS), str(30 * DAY_MS)),
        ("acme.lab.a", str(31 * DAY_MS), Refusal),
        ("others", "-1", "-1"),
    ],
)
def test_retention(policy: TopicPolicy, topic: str, asked: str | None, kept: Any) -> None:
    outcome = policy.creating(image_of(ACME), created(topic, 1, **({"retention_ms": asked} if asked else {})))
    if kept is Refusal:
        assert "may keep records for" in words_of(outcome)
    else:
        assert isinstance(outcome, TopicCreated)
        assert outcome.config.get("retention.ms") == kept


def test_retention_cannot_be_raised_or_reset_beyond_the_limit(policy: TopicPolicy) -> None:
    image = image_of(ACME, topics={"acme.shop.a": 1})
    assert policy.configuring(image, "acme.shop.a", {"retention.ms": "1"}) is None
    assert "604800000" in words_of(policy.configuring(image, "acme.shop.a", {})), "back to the broker's default"


# ── rates and bytes ──


def test_bytes_are_counted_by_product_and_limited_with_the_organisation() -> None:
    now = 0.0
    table = TrafficTable(lambda: CONFIG, lambda: now)
    acme = Organisation("acme", Limits(bytes_in=1000), {"shop": Limits(bytes_in=100), "lab": Limits()})
    shop, lab, other = (table.of(acme, product) for product in ("shop", "lab", "unknown"))
    assert table.of(acme, "shop") is shop
    assert [len(each.in_buckets) for each in (shop, lab, other)] == [2, 1, 1]
    assert shop.in_buckets[0] is lab.in_buckets[0] is other.in_buckets[0], "the organisation's"
    meter = unlimited_meter(None)
    for bucket in shop.in_buckets:
        meter.take(bucket, 500)
    assert meter.throttle_ms() > 1000, "100 bytes a second"
    table.follow({"acme": Organisation("acme", Limits(), {"shop": Limits()})})
    assert shop.in_buckets == ()
    assert table.by_product("acme").keys() == {"shop", ""}


def test_bytes_stored_here_and_elsewhere() -> None:
    now = 0.0
    sizes = {"acme.shop.a": 60, "acme.lab.b": 30, "globex.shop.a": 1000, "orders": 1000}
    acme = Organisation("acme", Limits(bytes_stored=200), {"shop": Limits(bytes_stored=100), "lab": Limits()})
    storage = Storage(lambda: sizes.items(), lambda: {"acme": acme}, lambda: now)
    assert storage.by_product("acme") == {"shop": 60, "lab": 30}
    assert storage.refusal(acme, "shop") is None
    storage.elsewhere = {2: {("acme", "shop"): 40, ("globex", "shop"): 500}}
    assert "Product acme/shop may store 100 bytes, and stores 100" in words_of(storage.refusal(acme, "shop"))
    assert storage.refusal(acme, "lab") is None
    sizes["acme.lab.b"] = 150
    assert storage.refusal(acme, "lab") is None, "counted a moment ago"
    now = FRESH_S
    assert "Organisation acme may store 200 bytes" in words_of(storage.refusal(acme, "lab"))


# ── members ──


def session(name: str, protocol: SecurityProtocol = SecurityProtocol.SASL_PLAINTEXT) -> Session:
    return Session("CLIENTS", "127.0.0.1:5", protocol, Principal("User", name))


def test_members_follow_the_image() -> None:
    alice, admin = session("acme/alice"), session("admin")
    image = image_of(ACME)
    directory = Directory(lambda: image, lambda: CONFIG, OrganisationReader(), Denials(), list, dict[str, int]().items)
    directory.follow(None, image)
    member = directory.member(alice)
    assert member is not None
    assert directory.member(alice) is member
    assert directory.member(admin) is None
    assert directory.member(session("globex/bob")) is None, "there is no such organisation"
    later = image_of(Organisation("acme"))
    directory.follow(image, later)
    assert directory.member(alice) is not member


def test_an_unreadable_organisation_gives_no_rights(caplog: pytest.LogCaptureFixture) -> None:
    image = apply(ClusterImage(), DocumentsChanged({path_of("acme"): "{"}))
    directory = Directory(lambda: image, lambda: CONFIG, OrganisationReader(), Denials(), list, dict[str, int]().items)
    directory.follow(None, image)
    member = directory.member(session("acme/alice"))
    assert member is not None
    assert not member.rights.reads[b"acme.shop.orders"]
    assert "its members have no rights" in caplog.text


def test_connections_are_limited() -> None:
    acme = Organisation("acme", Limits(connections=2))
    image = image_of(acme)
    first, second, third = (session(f"acme/{name}", SecurityProtocol.SSL) for name in "abc")
    open_ = [first, session("admin"), second]
    directory = Directory(
        lambda: image, lambda: CONFIG, OrganisationReader(), Denials(), lambda: open_, dict[str, int]().items
    )
    directory.follow(None, image)
    assert directory.connections("acme") == 2
    assert directory.member(first) is not None
    assert "2 connections" in (directory.refusal(third.principal) or "")
    assert directory.refusal(Principal("User", "admin")) is None
    open_.append(third)
    with pytest.raises(BadRequest, match="organisation acme has 2 connections"):
        directory.member(third)
    assert directory.member(first) is not None, "a connection that is there stays"
