"""`moldau up` and `moldau broker`: from a command line to a node's settings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.main import get_command

from moldau.tools.broker import app as broker_app
from moldau.tools.broker import launch as broker
from moldau.tools.broker.launch import Launch, build_properties, parse_properties, read_arguments, read_listen
from moldau.tools.common.failure import CommandError


def test_up_has_an_address_and_a_directory_of_its_own() -> None:
    assert build_properties(Launch("up")) == {
        "log.dirs": "data",
        "listeners": "PLAINTEXT://localhost:9092",
        "group.initial.rebalance.delay.ms": "0",
    }


def test_up_takes_settings() -> None:
    launch = read_arguments(["up", "--set", "num.partitions=3", "--set=log.retention.ms=5"])
    assert launch is not None
    found = build_properties(launch)
    assert (found["num.partitions"], found["log.retention.ms"]) == ("3", "5")


def test_a_plain_broker_leaves_everything_to_the_brokers_defaults() -> None:
    assert build_properties(Launch("broker")) == {}


def test_set_wins_over_flags_and_flags_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("log.dirs=/file\nlisteners=PLAINTEXT://:1\nnum.partitions=3\nlog.retention.ms=5\n")
    launch = Launch("broker", "/flag", "localhost:2", str(config), ("listeners=PLAINTEXT://:4", "num.partitions=7"))
    assert build_properties(launch) == {
        "log.dirs": "/flag",
        "listeners": "PLAINTEXT://:4",
        "num.partitions": "7",
        "log.retention.ms": "5",
    }


def test_dir_also_replaces_the_files_singular_spelling(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("log.dir=/file\n")
    assert build_properties(Launch("broker", "/flag", None, str(config))) == {"log.dirs": "/flag"}


@pytest.mark.parametrize("text", ["localhost:9092", ":9092", "0.0.0.0:0", "[::1]:9092", "a-b.c:65535"])
def test_addresses_to_listen_on(text: str) -> None:
    assert read_listen(text) == text


@pytest.mark.parametrize(
    "text", ["localhost", "", "9092", "localhost:", "localhost:x", "h:65536", "h:-1", "::1:9", "a/b:1"]
)
def test_a_malformed_listen_is_refused_in_words(text: str) -> None:
    with pytest.raises(CommandError, match="--listen") as refused:
        read_listen(text)
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["novalue", "=x", ""])
def test_a_setting_without_its_equals_sign_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match=r"--set .* is not of the form key=value"):
        build_properties(Launch("broker", settings=(text,)))


def test_a_setting_may_be_empty_or_hold_an_equals_sign() -> None:
    assert build_properties(Launch("broker", settings=("a=", "b=c=d"))) == {"a": "", "b": "c=d"}


def test_a_missing_config_file_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.properties")
    with pytest.raises(CommandError, match=r"cannot read --config .*none\.properties: No such file"):
        build_properties(Launch("broker", config=missing))


def test_a_binary_config_file_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match="not UTF-8"):
        build_properties(Launch("broker", config=str(config)))


def test_javas_properties_format() -> None:
    text = r"""
# a comment
  ! another
plain=1
spaced = two words
colon: 3
blank 4
empty=
continued=a,\
    b,\
    # not a comment
escaped\:key=x\ty\u00e9
path=C:\\data
 indented=5
last=\
"""
    assert parse_properties(text) == {
        "plain": "1",
        "spaced": "two words",
        "colon": "3",
        "blank": "4",
        "empty": "",
        "continued": "a,b,# not a comment",
        "escaped:key": "x\tyé",
        "path": r"C:\data",
        "indented": "5",
        "last": "",
    }


words = st.sampled_from(
    [
        "--dir",
        "--listen",
        "--config",
        "--set",
        "--dir=x",
        "--set=a=b",
        "--set=",
        "x",
        "a=b",
        "--help",
        "-h",
        "--",
        "-x",
        "--nope",
    ]
)


@settings(deadline=None)  # the first call imports what Typer needs
@given(st.sampled_from(["up", "broker"]), st.lists(words, max_size=6))
def test_the_short_reader_agrees_with_typer_or_leaves_the_line_to_it(command: str, arguments: list[str]) -> None:
    launch = read_arguments([command, *arguments])
    if launch is None:
        return
    typer_command = get_command(getattr(broker_app, f"{command}_app"))
    parameters = typer_command.make_context(command, list(arguments)).params
    assert launch == Launch(
        command,
        parameters["directory"],
        parameters["listen"],
        parameters.get("config"),
        tuple(parameters.get("settings") or ()),
    )


@pytest.mark.parametrize("arguments", [[], ["topic", "list"], ["-o", "json", "up"], ["up", "--help"], ["up", "--dir"]])
def test_other_lines_are_left_to_typer(arguments: list[str]) -> None:
    assert read_arguments(arguments) is None


def test_a_broker_starts_without_the_clients_dependencies() -> None:
    script = """
import json, sys, types
def run(properties, announce):
    heavy = [name for name in ("typer", "rich", "pydantic", "confluent_kafka") if name in sys.modules]
    print(json.dumps([properties, announce is None, heavy]))
    return 7
sys.modules["moldau.broker.node"] = types.SimpleNamespace(run=run)
from moldau.tools.main import main
main()
"""
    line = [sys.executable, "-c", script, "broker", "--dir", "/d", "--listen", ":0", "--set", "a=b"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    expected = {"log.dirs": "/d", "listeners": "PLAINTEXT://:0", "a": "b"}
    assert json.loads(done.stdout) == [expected, True, []]


def test_up_says_what_runs_where_and_what_to_try(capsys: pytest.CaptureFixture[str]) -> None:
    class Node:
        addresses = ("localhost:19999",)
        directories = ("data",)

    broker.announce(Node())
    said = capsys.readouterr().out
    assert "localhost:19999" in said
    assert str(Path("data").resolve()) in said
    assert "moldau topic create demo -b localhost:19999" in said
