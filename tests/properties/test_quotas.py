"""Quotas as values: precedence against a plain reading of Kafka's order, and token buckets over any schedule."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.quota_documents import altered, entity_of, path_of, read_quotas
from moldau.security.quotas import (
    DEFAULT,
    FETCH,
    PRODUCE,
    QUOTA_KEYS,
    Entity,
    Name,
    TokenBucket,
    Window,
    client_limit,
    ip_limit,
    wrong_value,
)

NAMES: st.SearchStrategy[Name] = st.sampled_from(["a", "b", DEFAULT, None])
ENTITIES = st.builds(Entity, NAMES, NAMES, st.none()).filter(lambda each: each != Entity())
RATES = st.integers(1, 10_000).map(float)
QUOTAS = st.dictionaries(ENTITIES, st.dictionaries(st.sampled_from([PRODUCE.name, FETCH.name]), RATES))

# Kafka's documentation lists the levels in this order: (of the user, of the client id).
ORDER = ["nn", "nd", "n-", "dn", "dd", "d-", "-n", "-d"]


def level(name: Name) -> str:
    return "-" if name is None else "d" if name is DEFAULT else "n"


@given(QUOTAS, st.sampled_from("abc"), st.sampled_from("abc"))
def test_the_most_specific_entity_with_a_quota_wins(
    quotas: Mapping[Entity, Mapping[str, float]], user: str, client_id: str
) -> None:
    matching = [
        entity
        for entity, values in quotas.items()
        if PRODUCE.name in values
        and entity.user in (user, DEFAULT, None)
        and entity.client_id in (client_id, DEFAULT, None)
    ]
    limit = client_limit(quotas, PRODUCE, user, client_id)
    if not matching:
        assert limit is None
        return
    first = min(matching, key=lambda each: ORDER.index(level(each.user) + level(each.client_id)))
    assert limit is not None
    assert limit.rate == quotas[first][PRODUCE.name]
    shared = (None if first.user is None else user, None if first.client_id is None else client_id)
    assert limit.bucket == (PRODUCE.name, *shared)


@given(st.dictionaries(st.sampled_from(["1.2.3.4", "::1", DEFAULT]), RATES), st.sampled_from(["1.2.3.4", "::2"]))
def test_an_address_has_its_own_rate_or_the_default(rates: Mapping[str, float], ip: str) -> None:
    quotas = {Entity(ip=name): {"connection_creation_rate": rate} for name, rate in rates.items()}
    assert ip_limit(quotas, ip) == rates.get(ip, rates.get(DEFAULT))


STEPS = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5_000)), max_size=30)


@given(RATES, STEPS, st.floats(0.1, 10))
def test_a_client_that_waits_stays_within_its_rate(
    rate: float, steps: list[tuple[float, float]], burst_s: float
) -> None:
    """Over every stretch of any schedule: the rate, one burst, and the last request."""
    bucket = TokenBucket(rate, Window(burst_s, burst_s), now=0.0)
    now, taken = 0.0, list[tuple[float, float]]()
    for pause, amount in steps:
        now += pause + bucket.wait_s(now + pause)
        bucket.take(amount, now)
        taken.append((now, amount))
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            total = sum(amount for _, amount in taken[first:last])  # without the last one, which exhausts it
            allowed = rate * (taken[last][0] - taken[first][0] + burst_s)
            assert total <= allowed * (1 + 1e-9) + 1e-6


@given(RATES, STEPS, st.floats(0, 10), st.floats(0.1, 20))
def test_a_wait_is_never_negative_or_longer_than_its_bound(
    rate: float, steps: list[tuple[float, float]], burst_s: float, longest_s: float
) -> None:
    bucket = TokenBucket(rate, Window(burst_s, burst_s, longest_s), now=100.0)
    now = 100.0
    for pause, amount in steps:
        now += pause - 2.0  # the clock of a caller may be behind
        bucket.take(amount, now)
        assert 0 <= bucket.wait_s(now) <= longest_s * (1 + 1e-9)


@given(RATES, st.floats(0, 10_000))
def test_a_wait_ends_when_it_says(rate: float, amount: float) -> None:
    bucket = TokenBucket(rate, Window(1.0, 0.1), now=0.0)
    bucket.take(amount, 0.0)
    end = bucket.wait_s(0.0)
    assert bucket.wait_s(end + 1e-6) == 0.0
    assert bucket.wait_s(end) <= 1e-6


ANY_NAMES: st.SearchStrategy[Name] = st.text(min_size=1) | st.just(DEFAULT)
ANY_ENTITIES = (
    st.builds(Entity, ANY_NAMES, st.none() | ANY_NAMES, st.none())
    | st.builds(Entity, st.none(), ANY_NAMES, st.none())
    | st.builds(Entity, st.none(), st.none(), ANY_NAMES)
)
VALUES = st.dictionaries(
    st.sampled_from(sorted(QUOTA_KEYS)), st.integers(1, 2**31 - 1).map(float) | st.just(0.5), max_size=3
).map(lambda found: {name: value for name, value in found.items() if not wrong_value(QUOTA_KEYS[name], value)})


@given(ANY_ENTITIES, VALUES)
def test_documents_keep_entities_and_values(entity: Entity, values: dict[str, float]) -> None:
    path = path_of(entity)
    assert entity_of(path) == entity
    text = altered(None, dict(values))
    assert (text is None) == (not values)
    if text is not None:
        assert read_quotas({path: text}) == ({entity: values}, [])
        assert altered(text, dict.fromkeys(values)) is None
