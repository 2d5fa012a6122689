"""What the dispatcher tells every handler: the session of the connection, the version and the correlation id."""

from types import SimpleNamespace
from typing import Any

from moldau.base.session import ANONYMOUS, Session
from moldau.broker.call import Call
from moldau.broker.context import Contexts
from moldau.broker.dispatch import Dispatcher, coordinator, hot
from moldau.broker.quotas import ClientQuotas
from moldau.broker.settings import load
from moldau.broker.table import APIS
from moldau.metadata.image import ClusterImage
from moldau.wire.codec import encode
from moldau.wire.headers import pack_request_header
from moldau.wire.messages.api_versions import ApiVersionsRequest
from moldau.wire.messages.registry import BY_KEY

PRODUCE, HEARTBEAT, API_VERSIONS = 0, 12, 18
BODY = b"\0\1g\0\0\0\0\0\1m"  # of a Heartbeat


class Recorder:
    """A dispatcher whose handlers note their calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.session = Session("CLIENTS", "10.0.0.1:5000")
        rows = [
            hot(BY_KEY[PRODUCE], self.hot, ()),
            coordinator(BY_KEY[HEARTBEAT], self.cold, ()),
            *(api for api in APIS if api.messages.key == API_VERSIONS),
        ]
        control: Any = SimpleNamespace(served=[], image=ClusterImage())
        unused: Any = None
        self.dispatcher = Dispatcher(Contexts(unused, control, unused, None), rows)

    def hot(self, ctx: object, frame: memoryview, at: int, call: Call) -> bytes:
        self.calls.append(call)
        return bytes(frame[at:])

    def cold(self, ctx: object, request: object, call: Call) -> bytes:
        self.calls.append(call)
        return b""

    def send(self, key: int, version: int, body: bytes, client_id: str | None) -> Any:
        return self.dispatcher(self._connection(), _frame(key, version, body, client_id))

    def log_in(self, key: int, version: int, body: bytes, client_id: str | None) -> Any:
        return self.dispatcher.log_in(self._connection(), _frame(key, version, body, client_id))

    def _connection(self) -> Any:
        return SimpleNamespace(session=self.session)


def _frame(key: int, version: int, body: bytes, client_id: str | None) -> memoryview:
    return memoryview(pack_request_header(key, version, 7, client_id) + body)


def test_a_hot_handler_gets_the_session_the_version_and_the_correlation_id() -> None:
    broker = Recorder()
    assert broker.send(PRODUCE, 9, b"body", "producer-1") == b"body"
    (call,) = broker.calls
    assert (call.version, call.correlation_id) == (9, 7)
    assert call.session is broker.session
    assert broker.session.client_id == "producer-1"
    assert broker.session.principal == ANONYMOUS


def test_a_cold_handler_gets_the_same() -> None:
    broker = Recorder()
    broker.send(HEARTBEAT, 0, BODY, "consumer-1")
    broker.send(HEARTBEAT, 0, BODY, None)
    assert [call.session is broker.session for call in broker.calls] == [True, True]
    assert broker.session.client_id is None
    assert broker.calls[0].caller()[1:] == (0, "", "/10.0.0.1")


def test_a_login_counts_against_no_quota() -> None:
    """As in Apache Kafka: who the client is shows at its end."""
    broker = Recorder()
    config, _ = load({})
    quotas = ClientQuotas(lambda: config)
    quotas.follow(None, ClusterImage(documents={"/config/clients/app": '{"config":{"request_percentage":"1"}}'}))
    broker.dispatcher.quotas = quotas
    broker.send(HEARTBEAT, 0, BODY, "app")
    broker.log_in(HEARTBEAT, 0, BODY, "app")
    assert [call.meter is None for call in broker.calls] == [False, True]
    assert broker.session.client_id == "app"


def test_api_versions_names_the_client_software() -> None:
    broker = Recorder()
    request = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.8.0")
    broker.send(API_VERSIONS, 3, encode(request, 3), "client")
    assert (broker.session.software_name, broker.session.software_version) == ("librdkafka", "2.8.0")


def test_client_software_without_a_valid_name_is_not_kept() -> None:
    broker = Recorder()
    request = ApiVersionsRequest(client_software_name="not valid", client_software_version="1")
    broker.send(API_VERSIONS, 3, encode(request, 3), "client")
    assert (broker.session.software_name, broker.session.software_version) == ("", "")
