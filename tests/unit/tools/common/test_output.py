"""Tables, JSON, failures and the measuring of latencies."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.admin.clients import admin_error, explain
from moldau.client.admin.errors import InvalidAddress
from moldau.client.admin.target import Target, read_address
from moldau.tools.common.failure import CommandError, misused, split_pair, tell_failure
from moldau.tools.common.options import Output, Shared, merge
from moldau.tools.common.output import print_json, print_table, show_time
from moldau.tools.common.remedies import command_error
from moldau.tools.records.perf import Latencies, throughput


def test_a_table_aligns_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "COUNT", "NODES"), [("a", 1, [1, 2]), ("longer", 100, [])])
    assert capsys.readouterr().out.splitlines() == [
        "NAME    COUNT  NODES",
        "a           1  1,2",
        "longer    100",
    ]


def test_what_is_missing_does_not_move_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "COUNT"), [("a", 100), ("b", None)])
    assert capsys.readouterr().out.splitlines() == ["NAME  COUNT", "a       100", "b         -"]


def test_a_table_in_a_pipe_is_never_folded(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "VALUE"), [("n" * 200, "v" * 200)])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_names_are_not_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME",), [("[bold]x[/bold]",), (None,)])
    assert capsys.readouterr().out.splitlines()[1:] == ["[bold]x[/bold]", "-"]


def test_json_in_a_pipe_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": ["é"]})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"a": ["é"]}


def test_a_failure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    tell_failure("first\n second")
    assert capsys.readouterr().err == "moldau: first second\n"


def test_a_failure_ends_with_its_remedy() -> None:
    error = CommandError("it broke.", remedy="Mend it")
    assert (str(error), error.exit_code) == ("it broke. Mend it", 1)
    assert misused("x").exit_code == 2


def test_pairs() -> None:
    assert split_pair("a=b=c", "-X") == ("a", "b=c")
    with pytest.raises(CommandError, match="-X 'a' is not of the form key=value"):
        split_pair("a", "-X")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("h:1", ("h", 1)),
        (" h ", ("h", 9092)),
        ("[::1]:5", ("::1", 5)),
        ("[::1]", ("::1", 9092)),
        ("SASL_SSL://h:2", ("h", 2)),
    ],
)
def test_broker_addresses(text: str, address: tuple[str, int]) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize("text", ["h:x", "h:0", "h:65536", ":9092", "h:"])
def test_bad_broker_addresses(text: str) -> None:
    with pytest.raises(InvalidAddress, match="is not a broker address"):
        read_address(text)


def test_options_after_the_command_win_and_properties_add_up() -> None:
    outer = Shared("a:1", Output.JSON, ("x=1", "y=1"))
    session = merge(outer, None, None, ["y=2"])
    assert (session.target.bootstrap, session.json) == ("a:1", True)
    assert session.target.properties == {"x": "1", "y": "2"}
    session = merge(outer, "b:2", Output.TABLE, None)
    assert (session.target.bootstrap, session.json) == ("b:2", False)
    assert merge(Shared(), None, None, None).target.bootstrap == "localhost:9092"


def test_errors_of_librdkafka_in_words() -> None:
    from confluent_kafka import KafkaError, KafkaException

    def failure(error: KafkaError | KafkaException, topic: str = "") -> str:
        return str(command_error(admin_error(error, Target("127.0.0.1:1"), topic=topic)))

    unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert failure(unknown, "demo").startswith("there is no topic 'demo'. List")
    assert "moldau topic create demo" in failure(KafkaException(unknown), "demo")
    silent = failure(KafkaError(KafkaError._TRANSPORT))
    assert "cannot reach a broker at 127.0.0.1:1" in silent
    assert "moldau up" in silent
    assert explain(KafkaError(KafkaError.INVALID_CONFIG, "Unknown name: x.")) == "Unknown name: x (INVALID_CONFIG)"


def test_times_are_shown_in_utc() -> None:
    assert show_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert show_time(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
    assert show_time(-1) is None
    assert show_time(2**62) is None


@given(st.lists(st.integers(0, 10_000), min_size=1))
def test_percentiles_equal_those_of_the_sorted_list(hundredths: list[int]) -> None:
    latencies = Latencies()
    for value in hundredths:
        latencies.add(value / 100 / 1000)
    ordered = sorted(hundredths)
    summary = latencies.summary()
    assert summary["max"] == ordered[-1] / 100
    assert summary["p50"] == ordered[(len(ordered) + 1) // 2 - 1] / 100
    assert summary["avg"] == pytest.approx(sum(ordered) / len(ordered) / 100, abs=0.01)


def test_throughput() -> None:
    figures = throughput(1000, 2_000_000, 2.0)
    assert (figures["records_per_s"], figures["mb_per_s"]) == (500.0, 1.0)
