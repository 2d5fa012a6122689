"""Typed values as JSON: what is written is read back the same, and what does not fit names its field."""

import dataclasses
import datetime
import decimal
import enum
import json
import subprocess
import sys
import uuid
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypeVar

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.serializers.models import JSON, Model
from moldau.client.serializers.port import SerializerContext
from moldau.client.serializers.scalars import InvalidValue, Unsupported

CONTEXT = SerializerContext("orders", "value")
T = TypeVar("T")
Cents = NewType("Cents", int)


class Tier(enum.Enum):
    GOLD = "gold"
    PLAIN = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    name: str
    price: decimal.Decimal
    tags: frozenset[str] = frozenset()


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    at: datetime.datetime
    items: list[Item]
    tier: Tier
    note: str | None
    parent: Optional["Order"] = None
    day: datetime.date | None = None
    hour: datetime.time | None = None
    weight: float = 0.0
    gift: bool = False
    cents: Cents = Cents(0)
    picture: bytes = b""
    place: tuple[float, float] | None = None
    history: tuple[int, ...] = ()
    counts: dict[int, str] = dataclasses.field(default_factory=dict)
    choice: int | str | None = None
    unit: Literal["kg", 1] = "kg"
    extra: Any = None
    size: Annotated[int, "in parcels"] = 1
    total: int = dataclasses.field(init=False, default=7)


@dataclasses.dataclass
class Page(Generic[T]):
    rows: list[T]


class Line(pydantic.BaseModel):
    name: str = pydantic.Field(alias="lineName")
    price: decimal.Decimal


class Cart(pydantic.BaseModel):
    owner: uuid.UUID
    lines: list[Line]
    at: datetime.datetime | None = None


@dataclasses.dataclass
class Shipment:
    cart: Cart


FINITE = st.floats(allow_nan=False, allow_infinity=False)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ITEMS = st.builds(Item, st.text(), DECIMALS, st.frozensets(st.text(), max_size=3))
ORDERS = st.builds(
    Order,
    id=st.uuids(),
    at=st.datetimes(timezones=st.none() | st.just(datetime.UTC)),
    items=st.lists(ITEMS, max_size=3),
    tier=st.sampled_from(Tier),
    note=st.none() | st.text(),
    parent=st.none(),
    day=st.none() | st.dates(),
    hour=st.none() | st.times(),
    weight=FINITE,
    gift=st.booleans(),
    cents=st.integers().map(Cents),
    picture=st.binary(),
    place=st.none() | st.tuples(FINITE, FINITE),
    history=st.lists(st.integers()).map(tuple),
    counts=st.dictionaries(st.integers(), st.text(), max_size=3),
    choice=st.none() | st.integers() | st.text(),
    unit=st.sampled_from(["kg", 1]),
    extra=JSON_VALUES,
    size=st.integers(),
)


def written(kind: Any, value: Any) -> bytes:
    raw = Model(kind).serialize(value, CONTEXT)
    assert raw is not None
    return raw


def read(kind: Any, raw: bytes | str) -> Any:
    return Model(kind).deserialize(raw.encode() if isinstance(raw, str) else raw, CONTEXT)


@given(ORDERS, ORDERS)
def test_a_dataclass_is_read_back_the_same(order: Order, parent: Order) -> None:
    order.parent = parent
    raw = written(Order, order)
    json.loads(raw)
    assert read(Order, raw) == order


@given(JSON_VALUES)
def test_json_without_a_type_is_read_back_the_same(value: Any) -> None:
    raw = JSON.serialize(value, CONTEXT)
    assert (raw is None) == (value is None)
    assert JSON.deserialize(raw, CONTEXT) == value


def test_the_form_is_compact_json_in_utf_8() -> None:
    item = Item("Käse", decimal.Decimal("1.10"), frozenset({"a"}))
    assert written(Item, item) == '{"name":"Käse","price":"1.10","tags":["a"]}'.encode()
    assert (
        written(datetime.datetime, datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC))
        == b'"2026-11-18T00:00:00+00:00"'
    )


def test_decimals_that_others_write_as_numbers_lose_no_digit() -> None:
    item = read(Item, '{"name": "x", "price": 12345678901234567890.10}')
    assert str(item.price) == "12345678901234567890.10"
    assert read(Item, '{"name": "x", "price": 7}').price == 7


def test_fields_of_a_newer_producer_are_passed_over_and_defaults_fill_older_ones() -> None:
    assert read(Item, '{"name": "x", "price": "1", "added": [1, 2]}') == Item("x", decimal.Decimal(1))


def test_a_generic_dataclass_is_read_with_its_parameter() -> None:
    raw = written(Page[Item], Page([Item("x", decimal.Decimal(1))]))
    assert read(Page[Item], raw) == Page([Item("x", decimal.Decimal(1))])
    with pytest.raises(InvalidValue, match=r"^field rows\[0\]: expected int, not dict$"):
        read(Page[int], raw)


@pytest.mark.parametrize(
    ("kind", "raw", "problem"),
    [
        (Item, '{"name": "x"}', "field price: is missing"),
        (Item, "[]", "expected the fields of Item, not list"),
        (Item, '{"name": 5, "price": "1"}', "field name: expected str, not int"),
        (Item, '{"name": "x", "price": "1,10"}', "field price: the text is no decimal number"),
        (Item, '{"name": "x", "price": true}', "field price: expected a decimal number, not bool"),
        (Item, '{"name": "x", "price": "1", "tags": {}}', "field tags: expected list, not dict"),
        (
            Page[Item],
            '{"rows": [{"name": "a", "price": 1}, {"name": null}]}',
            "field rows[1].name: expected str, not null",
        ),
        (dict[str, Page[int]], '{"a": {"rows": [1, "2"]}}', "field ['a'].rows[1]: expected int, not str"),
        (list[Tier], '["gold", "silver"]', "field [1]: the value is no Tier"),
        (list[int], "[1.0]", "field [0]: expected int, not float"),
        (list[bool], "[1]", "field [0]: expected bool, not int"),
        (float, "1e999", "the number is too large for a float"),
        (float, "true", "expected a number, not bool"),
        (uuid.UUID, '"x"', "the text is no UUID"),
        (datetime.datetime, '"today"', "the text is no ISO 8601 datetime"),
        (datetime.date, "20261118", "expected ISO 8601 date as text, not int"),
        (bytes, '"§"', "the text is no base64 text"),
        (tuple[int, str], "[1]", "expected a list of 2, not list"),
        (Literal["a", 1], "true", "expected one of 'a', 1, not bool"),
        (int | list[int], '"x"', "expected int or list, not str"),
        (dict[int, str], '{"x": "y"}', "field ['x']: the name is no whole number"),
        (None, "1", "expected null, not int"),
        (float, "NaN", "JSON has no NaN"),
    ],
)
def test_what_does_not_fit_names_its_field(kind: Any, raw: str, problem: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        read(kind, raw)
    assert str(raised.value) == problem


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Item, {"name": "x"}, "expected Item, not dict"),
        (Item, Item("x", 1.5), "field price: expected decimal number, not float"),  # type: ignore[arg-type]
        (Item, Item(None, decimal.Decimal(1)), "field name: expected str, not null"),  # type: ignore[arg-type]
        (Page[Item], Page([Item("x", decimal.Decimal(1)), 7]), "field rows[1]: expected Item, not int"),
        (list[float], [1.0, float("nan")], "field [1]: JSON has no infinity and no NaN"),
        (datetime.date, datetime.datetime(2026, 1, 1), "expected ISO 8601 date, not datetime"),
        (dict[int, int], {"1": 1}, "field ['1']: expected int, not str"),
        (set[int], [1], "expected set, not list"),
        (dict, {"a": [1, {"b": object()}]}, "field a[1].b: object has no form in JSON"),
        (dict, {"a": [float("inf")]}, "field a[0]: Out of range float values are not JSON compliant"),
    ],
)
def test_what_a_producer_gives_is_checked_before_it_is_sent(kind: Any, value: Any, problem: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        written(kind, value)
    assert str(raised.value).startswith(problem)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'"a" "b"', b"[" * 100_000, b"1" * 5_000])
def test_bytes_that_are_no_json_are_refused(raw: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        read(Any, raw)


def test_a_list_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="Circular"):
        written(list, loop)


def test_errors_do_not_tell_values() -> None:
    """They are logged, and the value may be one that was encrypted."""
    for raw in ('{"name": "x", "price": "secret"}', '{"name": 4711, "price": 1}'):
        with pytest.raises(InvalidValue) as raised:
            read(Item, raw)
        assert "secret" not in str(raised.value)
        assert "4711" not in str(raised.value)
    with pytest.raises(InvalidValue) as raised:
        read(Cart, '{"owner": "secret", "lines": []}')
    assert "field owner" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_type_without_a_form_is_refused_when_it_is_named() -> None:
    @dataclasses.dataclass
    class Odd:
        good: int
        bad: dict[str, list[complex]]

    @dataclasses.dataclass
    class Lost:
        other: "Nowhere"  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(Unsupported, match=r"^Odd\.bad: complex has no form in JSON"):
        Model(Odd)
    with pytest.raises(Unsupported, match="type hint of Lost names nothing that its module has"):
        Model(Lost)
    with pytest.raises(Unsupported, match="names in a JSON object are text"):
        Model(dict[Item, int])


def test_a_dataclass_may_refuse_its_fields() -> None:
    @dataclasses.dataclass
    class Positive:
        number: int

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("number must not be negative")

    assert read(Positive, '{"number": 1}') == Positive(1)
    with pytest.raises(InvalidValue, match="Positive cannot be made: number must not be negative"):
        read(Positive, '{"number": -1}')


def test_pydantic_models_keep_their_aliases_and_validators() -> None:
    cart = Cart(owner=uuid.uuid4(), lines=[Line(lineName="a", price=decimal.Decimal("1.10"))])
    assert json.loads(written(Cart, cart))["lines"] == [{"lineName": "a", "price": "1.10"}]
    assert read(Cart, written(Cart, cart)) == cart
    assert read(list[Cart], written(list[Cart], [cart])) == [cart]
    assert read(Shipment, written(Shipment, Shipment(cart))) == Shipment(cart)
    with pytest.raises(InvalidValue, match=r"^field lines\[0\]\.lineName: Field required \(and 1 more problems\)$"):
        read(Cart, json.dumps({"owner": str(cart.owner), "lines": [{}]}))
    with pytest.raises(InvalidValue, match=r"^field cart\.owner: Field required"):
        read(Shipment, '{"cart": {"lines": []}}')
    with pytest.raises(InvalidValue, match="expected Cart, not dict"):
        written(Cart, {})


def test_pydantic_is_not_needed() -> None:
    program = (
        "import sys; sys.modules['pydantic'] = None\n"
        "import moldau.client.serializers.choose\n"
        "assert 'pydantic_core' not in sys.modules and 'cryptography' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
