"""A request's call, as the dispatcher would make it, for tests that call handlers themselves."""

from moldau.base.session import Session
from moldau.broker.call import Call


def a_call(version: int, correlation_id: int = 1) -> Call:
    return Call(Session("PLAINTEXT", "127.0.0.1:1", client_id="client"), version, correlation_id)
