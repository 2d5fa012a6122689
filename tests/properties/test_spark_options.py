"""Options of Spark queries: whatever is written into them is read or refused, and JAAS strings say what was meant."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.base.settings import SettingsRefused
from moldau.security.jaas import Login, read_jaas
from moldau.spark.kafka_settings import KAFKA
from moldau.spark.offsets import SpecificOffsets, read_offsets
from moldau.spark.option_tables import READ, WRITE
from moldau.spark.options import read_options, write_options

NAMES = [setting.name for table in (READ, WRITE, KAFKA) for setting in table]
TEXTS = st.one_of(
    st.text(max_size=30),
    st.integers().map(str),
    st.sampled_from(["true", "latest", "SASL_SSL", "PLAIN", "a:1", "PEM", '{"a":{"0":1}}', '{"a":[0]}', "x required;"]),
)
TOPIC_NAMES = st.text("abcXYZ019._-", min_size=1, max_size=20).filter(lambda name: name not in (".", ".."))


@settings(max_examples=300)
@given(st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=20)), TEXTS, max_size=8), st.booleans())
def test_options_are_read_or_refused(options: dict[str, str], stream: bool) -> None:
    with suppress(SettingsRefused):
        read_options({"subscribe": "a", "kafka.bootstrap.servers": "a:1", **options}, stream=stream)
    with suppress(SettingsRefused):
        write_options({"kafka.bootstrap.servers": "a:1", **options})


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@given(st.dictionaries(st.from_regex(r"[a-zA-Z_]\w{0,10}", fullmatch=True), st.text(max_size=30), max_size=4))
def test_what_is_quoted_comes_back(options: dict[str, str]) -> None:
    text = (
        "org.example.SomeLoginModule required\n" + " ".join(f"{key} = {quoted(options[key])}" for key in options) + ";"
    )
    login = read_jaas(text)
    assert isinstance(login, Login), login
    assert (login.module, login.options) == ("SomeLoginModule", options)


@given(st.text(max_size=80))
def test_any_text_is_a_login_or_has_a_reason(text: str) -> None:
    assert isinstance(read_jaas(text), Login | str)


@given(
    st.dictionaries(
        st.builds(TopicPartition, TOPIC_NAMES, st.integers(0, 2**31 - 1)), st.integers(-2, 2**63 - 1), min_size=1
    )
)
def test_offsets_come_back(places: dict[TopicPartition, int]) -> None:
    by_topic: dict[str, list[str]] = {}
    for (topic, partition), offset in places.items():
        by_topic.setdefault(topic, []).append(f'"{partition}": {offset}')
    text = "{" + ", ".join(f'"{topic}": {{{", ".join(rows)}}}' for topic, rows in by_topic.items()) + "}"
    assert read_offsets("startingOffsets", text) == SpecificOffsets(places)
