"""The settings engine: each kind at its edges, the sentences for what does not fit, and the nearest name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.settings import Kind, Setting, SettingError, Table, java_double, markdown, text_of


def parse(kind: Kind, text: str, **more: object) -> object:
    value = Setting("a.setting", kind, **more).parse(text)
    return value.message if isinstance(value, SettingError) else value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOL, "true", True),
        (Kind.BOOL, " FALSE ", False),
        (Kind.INT, " +12 ", 12),
        (Kind.INT, "-2147483648", -(2**31)),
        (Kind.INT, "2147483647", 2**31 - 1),
        (Kind.SHORT, "32767", 32767),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.DOUBLE, "0.5", 0.5),
        (Kind.DOUBLE, "1e-1f", 0.1),
        (Kind.STRING, " some text ", "some text"),
        (Kind.LIST, "", ()),
        (Kind.LIST, " a , b,c ", ("a", "b", "c")),
        (Kind.CLASS, "org.example.Thing", "org.example.Thing"),
        (Kind.PASSWORD, "secret", "secret"),
    ],
)
def test_values_are_read_as_kafka_reads_them(kind: Kind, text: str, value: object) -> None:
    assert parse(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        (Kind.BOOL, "yes", "a.setting must be true or false, got 'yes'"),
        (Kind.INT, "", "a.setting must be a plain whole number, got ''"),
        (Kind.INT, "1.5", "a.setting must be a plain whole number, got 1.5"),
        (Kind.INT, "١٢", "a.setting must be a plain whole number, got ١٢"),
        (Kind.INT, "1_000", "a.setting must be a plain whole number, got 1_000; write the digits alone"),
        (Kind.INT, "2147483648", "a.setting must be a whole number from -2147483648 to 2147483647, got 2147483648"),
        (Kind.SHORT, "-32769", "a.setting must be a whole number from -32768 to 32767, got -32769"),
        (Kind.DOUBLE, "nan", "a.setting must be a number, got nan"),
        (Kind.DOUBLE, "", "a.setting must be a number, got ''"),
        (Kind.DOUBLE, "0x1p3", "a.setting must be a number, got 0x1p3"),
    ],
)
def test_a_value_of_the_wrong_kind_is_explained(kind: Kind, text: str, sentence: str) -> None:
    assert parse(kind, text) == sentence


@pytest.mark.parametrize("digits", ["9" * 41, "9" * 100_000])
def test_a_very_long_number_is_out_of_range_at_once(digits: str) -> None:
    sentence = str(parse(Kind.LONG, digits))
    assert "must be a whole number from" in sentence
    assert len(sentence) < 300


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        ("segment.bytes", "10MB", "write 10485760"),
        ("segment.bytes", "10 MiB", "write 10485760"),
        ("segment.bytes", "1g", "write 1073741824"),
        ("segment.bytes", "10 potatoes", "write it without the unit 'potatoes'"),
        ("retention.ms", "7d", "write 604800000"),
        ("retention.ms", "90min", "write 5400000"),
        ("retention.ms", "10days", "write it without the unit 'days'"),
        ("log.retention.hours", "7d", "write 168"),
        ("log.retention.hours", "30min", "write it without the unit 'min'"),
    ],
)
def test_a_number_with_a_unit_gets_told_what_to_write(name: str, text: str, advice: str) -> None:
    problem = Setting(name, Kind.LONG).parse(text)
    assert isinstance(problem, SettingError)
    assert problem.message == f"{name} must be a plain whole number, got {text}; {advice}"


@pytest.mark.parametrize(
    ("more", "text", "sentence"),
    [
        ({"least": 3}, "2", "a.setting must be at least 3, got 2"),
        ({"least": 3}, "3", 3),
        ({"most": 3}, "4", "a.setting must be at most 3, got 4"),
        ({"most": 3}, "3", 3),
        ({"least": 1, "most": 9, "also": (-1,)}, "-1", -1),
        ({"least": 1, "most": 9, "also": (-1,)}, "0", "a.setting must be between 1 and 9, or -1, got 0"),
    ],
)
def test_bounds(more: dict[str, object], text: str, sentence: object) -> None:
    assert parse(Kind.INT, text, **more) == sentence


def test_choices() -> None:
    assert parse(Kind.STRING, "b", choices=("a", "b")) == "b"
    assert parse(Kind.STRING, "B", choices=("a", "b")) == "a.setting must be one of a, b, got 'B'"
    assert parse(Kind.STRING, "B", choices=("a", "b"), any_case=True) == "B"
    assert parse(Kind.LIST, "b,a", choices=("a", "b")) == ("b", "a")
    assert parse(Kind.LIST, "a,x", choices=("a", "b")) == "a.setting must be a list of: a, b, got 'a,x'"


def test_a_password_is_never_repeated() -> None:
    setting = Setting("the.password", Kind.PASSWORD, check=lambda value: "longer")
    problem = setting.parse("hunter2")
    assert isinstance(problem, SettingError)
    assert "hunter2" not in problem.message


TABLE = Table("topic", [Setting("segment.bytes", Kind.INT, least=1), Setting("hidden.bytes", Kind.INT, hidden=True)])


@pytest.mark.parametrize("typo", ["segment.byte", "segment_bytes", "Segment.Bytes", "segmnet.bytes"])
def test_an_unknown_name_gets_the_nearest_one(typo: str) -> None:
    problem = TABLE.parse(typo, "1")
    assert isinstance(problem, SettingError)
    assert problem.message == f"Unknown topic config name: {typo}; did you mean segment.bytes?"


def test_far_off_and_hidden_names_are_not_suggested() -> None:
    assert TABLE.unknown("zzz").message == "Unknown topic config name: zzz"
    assert TABLE.nearest("hidden.byte") != "hidden.bytes"
    assert len(TABLE.unknown("segment.bytes" * 10_000).message) < 200


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (7, "7"),
        (("a", "b"), "a,b"),
        ((), ""),
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1e7, "1.0E7"),
        (5e-4, "5.0E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_values_are_written_as_java_writes_them(value: object, text: str | None) -> None:
    assert text_of(value) == text  # type: ignore[arg-type]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_survives_being_written(value: float) -> None:
    assert parse(Kind.DOUBLE, java_double(value)) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_long_survives_being_written(value: int) -> None:
    assert parse(Kind.LONG, str(text_of(value))) == value


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    for kind in Kind:
        Setting("some.ms", kind, least=0, choices=("a",) if kind is Kind.STRING else ()).parse(text)


def test_markdown_has_a_row_per_setting() -> None:
    page = markdown(
        [Setting("b", Kind.INT, 3, least=1, doc="Two."), Setting("a", Kind.BOOL, True, doc="One.")], live=True
    )
    lines = page.splitlines()
    assert lines[2] == "| `a` | bool | `true` | `true`, `false` | at start only | One. |"
    assert lines[3] == "| `b` | int | `3` | ≥ 1 | at start only | Two. |"
