"""Listeners and advertised addresses: what is read, refused and warned about."""

import pytest

from moldau.base.session import SecurityProtocol
from moldau.base.settings import SettingError, SettingsRefused
from moldau.broker.listener_settings import Listener, read_listener, read_protocols
from moldau.broker.node import _inter_broker_listener
from moldau.broker.settings import load

BOTH_PLAIN = "PLAINTEXT:PLAINTEXT,SSL:PLAINTEXT"
PLAINTEXT, SSL, SASL_SSL = SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL, SecurityProtocol.SASL_SSL
PLAIN = {"PLAINTEXT": PLAINTEXT, "OUTSIDE": PLAINTEXT, "SSL": SSL, "SASL_SSL": SASL_SSL}


@pytest.mark.parametrize(
    ("text", "name", "host", "port"),
    [
        ("PLAINTEXT://:9092", "PLAINTEXT", "", 9092),
        ("PLAINTEXT://0.0.0.0:0", "PLAINTEXT", "0.0.0.0", 0),
        ("outside://broker-1.example_x.com:65535", "OUTSIDE", "broker-1.example_x.com", 65535),
        ("PLAINTEXT://[::1]:9092", "PLAINTEXT", "::1", 9092),
    ],
)
def test_addresses(text: str, name: str, host: str, port: int) -> None:
    assert read_listener("listeners", text, PLAIN) == Listener(name, PLAINTEXT, host, port)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be a list of NAME://host:port, got ''"),
        ("localhost:9092", "must be a list of NAME://host:port"),
        ("PLAINTEXT://localhost", "must be a list of NAME://host:port"),
        ("PLAINTEXT://localhost:x", "must be a list of NAME://host:port"),
        ("PLAINTEXT://local host:1", "must be a list of NAME://host:port"),
        ("PLAINTEXT://:65536", "has a port above 65535"),
        ("OTHER://:1", "add OTHER:PLAINTEXT to the map"),
    ],
)
def test_addresses_that_do_not_fit(text: str, reason: str) -> None:
    problem = read_listener("listeners", text, PLAIN)
    assert isinstance(problem, SettingError)
    assert reason in problem.message


@pytest.mark.parametrize("text", ["zookeeper:port", "a b:1", "a:70000", ",", "a:1,/b//c", ":2181"])
def test_what_is_no_ensemble(text: str) -> None:
    with pytest.raises(SettingsRefused, match=r"zookeeper\.connect"):
        load({"zookeeper.connect": text}, host_name="h")


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"listeners": "OUT://:1,PLAINTEXT://:2"}, "PLAINTEXT"),
        ({"listeners": "OUT://:1,IN://:2"}, "OUT"),
        ({"listeners": "OUT://:1,IN://:2", "inter.broker.listener.name": "in"}, "IN"),
    ],
)
def test_where_brokers_meet(more: dict[str, str], name: str) -> None:
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT,IN:PLAINTEXT"}
    config, _ = load({**protocols, **more}, host_name="h")
    assert _inter_broker_listener(config) == name


def test_protocol_map() -> None:
    assert read_protocols("a:PLAINTEXT, b:sasl_ssl") == {"A": PLAINTEXT, "B": SASL_SSL}
    for wrong in ("a", "a:TLS", ":SSL", "a:SSL,A:SSL"):
        assert isinstance(read_protocols(wrong), SettingError)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "listeners has the name PLAINTEXT twice"),
        ({"listeners": "PLAINTEXT://:1,SSL://h:1", "listener.security.protocol.map": BOTH_PLAIN},
         "listeners has port 1 twice: PLAINTEXT://:1 and SSL://h:1"),
        ({"listeners": ""}, "listeners must have at least one for clients"),
        ({"listeners": "C://:1", "controller.listener.names": "c"}, "listeners must have at least one for clients"),
        ({"advertised.listeners": "SSL://h:1", "listener.security.protocol.map": BOTH_PLAIN},
         "advertised.listeners has SSL, which is not in listeners (PLAINTEXT)"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "0.0.0.0 is none; write this machine's host name"),
        ({"advertised.listeners": "PLAINTEXT://[::]:9092"}, ":: is none; write this machine's host name"),
        ({"inter.broker.listener.name": "OTHER"}, "must be one of the listeners (PLAINTEXT), got OTHER"),
        ({"security.inter.broker.protocol": "SSL"}, "no listener has this name (PLAINTEXT); set inter.broker.listener"),
        ({"security.inter.broker.protocol": "SSL", "inter.broker.listener.name": "PLAINTEXT"}, "set; leave one out"),
    ],
)  # fmt: skip
def test_listeners_that_contradict_each_other(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingsRefused) as refused:
        load(properties)
    assert len(refused.value.problems) == 1
    assert reason in str(refused.value)


def test_two_free_ports_and_two_hosts_with_one_port_are_fine() -> None:
    both = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    assert len(load(both | {"listeners": "A://:0,B://:0"})[0].listeners) == 2
    assert len(load(both | {"listeners": "A://127.0.0.1:9092,B://[::1]:9092"})[0].listeners) == 2


# Without it, there is a warning of listeners that let everyone in.
GUARDED = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_every_interface_is_advertised_by_the_host_name(host: str) -> None:
    config, warnings = load({"listeners": f"PLAINTEXT://{host}:9092", **GUARDED}, host_name="box.example")
    assert [str(listener) for listener in config.advertised] == ["PLAINTEXT://box.example:9092"]
    assert warnings == []


@pytest.mark.parametrize("told", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_advertising_loopback_to_everyone_is_explained(told: str) -> None:
    listeners = {"listeners": "PLAINTEXT://:9092", "advertised.listeners": f"PLAINTEXT://{told}:9092"}
    _, warnings = load({**listeners, **GUARDED})
    assert warnings == [
        f"advertised.listeners tells every client to connect to {told}:9092: clients on other machines will try to "
        "reach themselves; listeners accepts them (PLAINTEXT://:9092), so advertise an address they can reach"
    ]


def test_a_listener_on_loopback_may_be_advertised_as_such() -> None:
    assert load({"listeners": "PLAINTEXT://localhost:9092"})[1] == []


def test_a_listener_without_advertised_address_stands_for_itself() -> None:
    config, _ = load(
        {
            "listeners": "A://10.0.0.1:1,B://10.0.0.2:2",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            "advertised.listeners": "B://b.example:22",
        }
    )
    assert [str(listener) for listener in config.advertised] == ["A://10.0.0.1:1", "B://b.example:22"]
