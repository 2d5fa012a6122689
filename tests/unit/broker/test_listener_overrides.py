"""Settings of single listeners: how names are taken apart, and which value a listener has."""

import pytest

from moldau.base.settings import SettingsRefused
from moldau.broker.listener_overrides import split
from moldau.broker.settings import BROKER, load


@pytest.mark.parametrize(
    ("name", "listener", "mechanism", "setting"),
    [
        ("listener.name.outside.ssl.keystore.location", "OUTSIDE", "", "ssl.keystore.location"),
        ("listener.name.OutSide.sasl.enabled.mechanisms", "OUTSIDE", "", "sasl.enabled.mechanisms"),
        ("listener.name.in.scram-sha-256.sasl.jaas.config", "IN", "SCRAM-SHA-256", "sasl.jaas.config"),
        ("listener.name.ssl.ssl.key.password", "SSL", "", "ssl.key.password"),
    ],
)
def test_names_of_listeners(name: str, listener: str, mechanism: str, setting: str) -> None:
    assert split(name, BROKER) == (listener, mechanism, BROKER[setting])


@pytest.mark.parametrize(
    "name",
    ["ssl.key.password", "listener.name.ssl.key.password", "listener.name..ssl.key.password",
     "listener.name.a.b.ssl.key.password", "listener.name.a.plain.b.sasl.jaas.config", "listener.name.a."],
)  # fmt: skip
def test_names_that_are_of_no_listener(name: str) -> None:
    assert split(name, BROKER) is None


def test_the_nearest_value_counts() -> None:
    config, _ = load(
        {
            "sasl.mechanism.inter.broker.protocol": "A",
            "listener.name.outside.sasl.mechanism.inter.broker.protocol": "B",
            "listener.name.outside.plain.sasl.mechanism.inter.broker.protocol": "C",
        }
    )
    name = "sasl.mechanism.inter.broker.protocol"
    assert config.of_listener("PLAINTEXT")[name] == "A"
    assert config.of_listener("outside")[name] == "B"
    assert config.of_listener("OUTSIDE", "plain")[name] == "C"
    assert config.of_listener("OUTSIDE", "SCRAM-SHA-256")[name] == "B"
    assert config.of_listener("OUTSIDE")["num.partitions"] == 1
    assert config.overrides.has("outside", name)
    assert not config.overrides.has("inside", name)


def test_a_bad_value_is_told_with_the_whole_name() -> None:
    with pytest.raises(SettingsRefused, match=r"listener\.name\.a\.sasl\.login\.read\.timeout\.ms: .* whole number"):
        load({"listener.name.a.sasl.login.read.timeout.ms": "soon"})


def test_a_setting_of_all_listeners_is_not_of_one() -> None:
    config, warnings = load({"listener.name.a.max.connections": "5"})
    assert config.of_listener("A")["max.connections"] == config.max_connections
    assert warnings[0] == (
        "listener.name.a.max.connections is ignored: max.connections is one setting for all listeners here"
    )
