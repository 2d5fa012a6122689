"""Who is elected, and identities in Confluent's form."""

import json

from moldau.services.registry.election import DUPLICATE_URLS, NO_ERROR, Identity, elect, read_identity, timing_of


def at(port: int, *, eligible: bool = True, writes: bool = False) -> Identity:
    return Identity("http", "localhost", port, eligible, writes)


def test_the_first_eligible_member_writes() -> None:
    found = elect({"b": at(1), "a": at(2, eligible=False), "c": at(3)})
    assert (found["master"], found["error"]) == ("b", NO_ERROR)
    assert read_identity(found["master_identity"]) == at(1)


def test_the_one_that_writes_goes_on() -> None:
    assert elect({"a": at(1), "b": at(2, writes=True)})["master"] == "b"
    assert elect({"a": at(1), "b": at(2, eligible=False, writes=True)})["master"] == "a"


def test_nobody_eligible() -> None:
    found = elect({"a": at(1, eligible=False)})
    assert (found["master"], found["master_identity"], found["error"]) == (None, None, NO_ERROR)


def test_one_address_twice_is_an_error() -> None:
    found = elect({"a": at(1), "b": at(1)})
    assert (found["master"], found["error"]) == (None, DUPLICATE_URLS)


def test_an_identity_of_confluents_registry() -> None:
    text = '{"version":1,"host":"sr-1","port":8081,"master_eligibility":true,"scheme":"https","leader":false}'
    found = read_identity(json.loads(text))
    assert found == Identity("https", "sr-1", 8081)
    assert found.url == "https://sr-1:8081"
    assert json.loads(json.dumps(found.to_json())) == json.loads(text)


def test_identities_that_are_none() -> None:
    for value in (None, [], {}, {"host": "x"}, {"host": 7, "port": 1}, {"host": "x", "port": "1"}):
        assert read_identity(value) is None


def test_an_address_of_ipv6() -> None:
    assert Identity("http", "::1", 1).url == "http://[::1]:1"


def test_a_session_has_five_heartbeats() -> None:
    assert timing_of(10).heartbeat_s == 2
    assert timing_of(10).rebalance_ms == 15_000
