"""Quotas of a broker: which connections share a count, what a change keeps, and the bounds."""

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.session import Principal, Session
from moldau.broker import quotas as broker_quotas
from moldau.broker.dispatch import by_brokers
from moldau.broker.quota_documents import altered, read_quotas
from moldau.broker.quotas import EXCEEDED, ClientQuotas, Meter, Timed, counted
from moldau.metadata.changes import Change, TopicDeleted
from moldau.metadata.image import ClusterImage
from moldau.security.quotas import Entity
from moldau.wire.messages.registry import BY_KEY


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Muted:
    """A connection that notes for how long it was muted."""

    def __init__(self) -> None:
        self.ms: list[int] = []

    def throttle(self, ms: float) -> None:
        self.ms.append(round(ms))


def document(**config: str) -> str:
    return json.dumps({"version": 1, "config": config})


def made(clock: Clock, **documents: str) -> ClientQuotas:
    config: Any = SimpleNamespace(
        quota_window_num=11,
        quota_window_size_seconds=1,
        controller_quota_window_num=11,
        controller_quota_window_size_seconds=1,
    )
    quotas = ClientQuotas(lambda: config, clock)
    assert follow(quotas, documents)
    return quotas


def follow(quotas: ClientQuotas, documents: dict[str, str]) -> bool:
    return quotas.follow(
        None, ClusterImage(documents={path.replace("_", "/"): text for path, text in documents.items()})
    )


def session(user: str = "alice", client_id: str = "app") -> Session:
    return Session("PLAINTEXT", "127.0.0.1:1", principal=Principal("User", user), client_id=client_id)


def metered(quotas: ClientQuotas, of: Session, connection: Muted | None = None) -> Meter:
    meter = quotas.meter(of, of.client_id or "", connection)
    assert meter is not None
    return meter


ALICE = "_config_users_alice"


class TestDocuments:
    def test_credentials_beside_quotas_stay(self) -> None:
        text = altered(document(**{"SCRAM-SHA-256": "salt=…"}), {"producer_byte_rate": 1024.0})
        assert text is not None
        assert json.loads(text) == {"version": 1, "config": {"SCRAM-SHA-256": "salt=…", "producer_byte_rate": "1024"}}
        without = altered(text, {"producer_byte_rate": None})
        assert without is not None
        assert json.loads(without)["config"] == {"SCRAM-SHA-256": "salt=…"}

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"config": 1}', document(producer_byte_rate="many")])
    def test_a_document_that_cannot_be_read_is_named(self, text: str) -> None:
        assert read_quotas({"/config/users/alice": text}) == ({}, ["/config/users/alice"])

    @pytest.mark.parametrize("value", ["0", "-1", "nan", "1.5", "1e40"])
    def test_a_value_that_no_quota_can_have_is_not_applied(self, value: str) -> None:
        text = document(producer_byte_rate=value, consumer_byte_rate="7")
        quotas, unreadable = read_quotas({"/config/users/alice": text})
        assert quotas == {Entity("alice"): {"consumer_byte_rate": 7.0}}
        assert unreadable == ["/config/users/alice"]

    def test_documents_of_others_are_none_of_its_business(self) -> None:
        others = {"/kafka-acl/Topic": "{", "/config/users/alice": document(**{"SCRAM-SHA-256": "salt"})}
        assert read_quotas(others) == ({}, [])

    def test_what_cannot_be_read_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            made(Clock(), **{ALICE: document(producer_byte_rate="x", consumer_byte_rate="1")})
        assert "A quota in /config/users/alice cannot be read" in caplog.text


class TestCounting:
    def test_connections_of_a_client_share_its_quota(self) -> None:
        clock, one, other = Clock(), Muted(), Muted()
        quotas = made(clock, **{ALICE: document(producer_byte_rate="1000")})
        metered(quotas, session(client_id="app"), one).produced(600)
        metered(quotas, session(client_id="other"), other).produced(1_000)
        assert one.ms == [500]  # a tenth of a second is there at the beginning
        assert other.ms == [1_500]

    def test_each_client_id_has_its_own_count_under_a_default(self) -> None:
        quotas = made(Clock(), **{"_config_clients_<default>": document(producer_byte_rate="1000")})
        one, other = Muted(), Muted()
        metered(quotas, session(client_id="app"), one).produced(600)
        metered(quotas, session(client_id="other"), other).produced(600)
        assert one.ms == other.ms == [500]

    def test_a_client_without_a_quota_has_no_meter(self) -> None:
        quotas = made(Clock(), **{ALICE: document(producer_byte_rate="1000")})
        assert quotas.meter(session("bob"), "", None) is None
        assert quotas.meter(session("alice"), "", None) is not None

    def test_a_session_looks_again_when_quotas_or_its_principal_change(self) -> None:
        quotas = made(Clock(), **{ALICE: document(producer_byte_rate="1000")})
        of = session("alice")
        first = metered(quotas, of).quota
        assert metered(quotas, of).quota is first
        of.principal = Principal("User", "bob")
        assert quotas.meter(of, of.client_id or "", None) is None
        of.principal = Principal("User", "alice")
        assert follow(quotas, {ALICE: document(producer_byte_rate="2000")})
        again = metered(quotas, of).quota
        assert again.produce is not None
        assert again.produce.rate == 2000.0
        assert again.produce is first.produce, "what was counted stays counted"

    def test_an_image_with_the_same_quotas_changes_nothing(self) -> None:
        quotas = made(Clock(), **{ALICE: document(producer_byte_rate="1000")})
        assert not follow(quotas, {ALICE: document(producer_byte_rate="1000", other="x")})
        assert follow(quotas, {})
        assert not quotas.active

    def test_a_fetch_over_the_quota_waits(self) -> None:
        clock, muted = Clock(), Muted()
        quotas = made(clock, **{ALICE: document(consumer_byte_rate="1000")})
        meter = metered(quotas, session(), muted)
        assert meter.may_fetch
        assert meter.most_fetched == 250
        meter.fetched(600)
        assert meter.throttle_ms(fetch=True) == 500
        assert not metered(quotas, session()).may_fetch
        clock.now += 0.5
        assert metered(quotas, session()).may_fetch

    def test_time_of_the_loop_counts_and_waiting_does_not(self) -> None:
        muted = Muted()
        quotas = made(Clock(), **{ALICE: document(request_percentage="1")})

        async def work() -> str:
            await asyncio.sleep(0.2)
            return "done"

        async def main() -> tuple[object, int]:
            meter = metered(quotas, session(), muted)
            return await Timed(work(), meter), meter.throttle_ms()

        outcome, throttle_ms = asyncio.run(main())
        assert outcome == "done"
        assert throttle_ms < 11_000, "0.2 s of waiting would be 20 s of one percent"

    def test_the_wait_for_loop_time_is_bounded(self) -> None:
        quotas = made(Clock(), **{ALICE: document(request_percentage="1")})
        meter = metered(quotas, session())
        assert meter.quota.request is not None
        meter.quota.request.take(3_600, Clock.now)
        assert meter.throttle_ms() == 11_000

    def test_an_error_reaches_timed_work(self) -> None:
        caught: list[BaseException] = []

        async def work() -> None:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError as cancelled:
                caught.append(cancelled)
                raise

        async def main() -> None:
            quotas = made(Clock(), **{ALICE: document(request_percentage="1")})

            async def timed() -> None:
                await Timed(work(), metered(quotas, session()))

            task = asyncio.create_task(timed())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert len(caught) == 1

    def test_full_buckets_make_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(broker_quotas, "MAX_BUCKETS", 3)
        clock = Clock()
        quotas = made(clock, **{"_config_clients_<default>": document(producer_byte_rate="1000")})
        metered(quotas, session(client_id="busy"), Muted()).produced(1_000_000)
        for number in range(10):
            clock.now += 10
            metered(quotas, session(client_id=f"app-{number}"))
            assert len(quotas._buckets) <= 3
        waiting = metered(quotas, session(client_id="busy")).quota.produce
        assert waiting is not None
        assert waiting.wait_s(clock.now) > 800


class TestMutations:
    @staticmethod
    def deciding(quotas: ClientQuotas, partitions: int, *, strict: bool = True) -> tuple[Any, Meter]:
        meter = metered(quotas, session())
        return counted(lambda image: TopicDeleted("t"), meter, lambda image, change: partitions, strict=strict), meter

    def test_an_exhausted_quota_refuses_and_says_how_long(self) -> None:
        quotas = made(Clock(), **{ALICE: document(controller_mutation_rate="2")})
        decide, meter = self.deciding(quotas, 100)
        assert decide(ClusterImage()) == TopicDeleted("t")  # the bucket was full: 22 mutations
        assert meter.throttle_ms() == 0
        decide, meter = self.deciding(quotas, 1)
        assert decide(ClusterImage()) is EXCEEDED
        assert EXCEEDED.error is WireError.THROTTLING_QUOTA_EXCEEDED
        assert meter.throttle_ms() == (100 - 22) / 2 * 1000

    def test_older_versions_are_throttled_instead(self) -> None:
        quotas = made(Clock(), **{ALICE: document(controller_mutation_rate="2")})
        decide, meter = self.deciding(quotas, 24, strict=False)
        assert decide(ClusterImage()) == TopicDeleted("t")
        assert meter.throttle_ms() == 1_000

    def test_a_decision_counts_once_and_a_refusal_never(self) -> None:
        quotas = made(Clock(), **{ALICE: document(controller_mutation_rate="2")})
        decide, _ = self.deciding(quotas, 22)
        for _ in range(5):  # the controller decides again when another wrote in between
            assert decide(ClusterImage()) == TopicDeleted("t")
        refusal = Refusal(WireError.UNKNOWN_TOPIC_OR_PARTITION, "")

        def refuse(image: ClusterImage) -> Change | Refusal:
            return refusal

        meter = metered(quotas, session())
        assert counted(refuse, meter, lambda image, change: 1_000, strict=True)(ClusterImage()) is refusal
        assert meter.mutated(1, strict=True) is None
        assert meter.mutated(1, strict=True) is EXCEEDED

    def test_without_a_quota_the_decision_is_the_same(self) -> None:
        def decide(image: ClusterImage) -> Change:
            return TopicDeleted("t")

        assert counted(decide, None, lambda image, change: 1, strict=True) is decide


class TestConnections:
    def test_connections_over_the_rate_wait_longer_and_longer(self) -> None:
        quotas = made(Clock(), **{"_config_ips_10.0.0.1": document(connection_creation_rate="2")})
        waits = [quotas.connection_wait_s("10.0.0.1") for _ in range(4)]
        assert waits == [(0.0, True), (0.0, True), (0.5, True), (1.0, True)]
        assert quotas.connection_wait_s("10.0.0.2") == (0.0, True)

    def test_those_that_would_wait_too_long_are_refused_and_do_not_count(self) -> None:
        clock = Clock()
        quotas = made(clock, **{"_config_ips_<default>": document(connection_creation_rate="1")})
        waits = [quotas.connection_wait_s("10.0.0.1") for _ in range(30)]
        assert waits[11] == (11.0, True)
        assert waits[12:] == [(11.0, False)] * 18
        clock.now += 2
        assert quotas.connection_wait_s("10.0.0.1") == (10.0, True)


@pytest.mark.parametrize(
    ("key", "version", "expected"),
    [(0, 12, False), (3, 12, False), (24, 3, False), (24, 4, True), (27, 1, True), (56, 3, True), (58, 0, True)],
)
def test_brokers_have_no_quotas(key: int, version: int, expected: bool) -> None:
    assert by_brokers(BY_KEY[key], version) is expected
