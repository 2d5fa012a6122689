"""Quotas on a live broker: rates that clients reach, throttle times that they see, precedence, changes."""

import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.metadata import MetadataRequest

from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.clients import confluent
from support.clients.quotas import DEFAULT, EXACT, SPECIFIED, Entity, alter, describe, quota
from support.clients.raw import ConnectionEndedError, RawClient
from support.kafka import jvm
from support.log.batches import Written, batch

RATE = 1_000_000
SECONDS = 8.0
VALUE = bytes(10_000)  # large, so that the bytes of values are nearly those that count
INVALID_REQUEST, UNSUPPORTED_VERSION, THROTTLING_QUOTA_EXCEEDED = 42, 35, 89
PRODUCED, FETCHED = "producer_byte_rate", "consumer_byte_rate"


@pytest.fixture
def client_id() -> str:
    return f"quota-{uuid.uuid4().hex[:8]}"


def produce_for(seconds: float, settings: dict[str, Any], topic: str) -> float:
    """Bytes of values per second that were acknowledged."""
    done = 0

    def delivered(error: object, message: Any) -> None:
        nonlocal done
        assert error is None
        done += len(VALUE)

    producer = Producer({"linger.ms": 5, "batch.size": 100_000, "queue.buffering.max.kbytes": 2_000, **settings})
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        try:
            producer.produce(topic, VALUE, callback=delivered)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    rate = done / (time.monotonic() - begun)
    producer.purge()
    return rate


class TestRates:
    def test_librdkafka_produces_at_its_quota(
        self, broker: AnyBroker, create_topic: CreateTopic, client_id: str
    ) -> None:
        topic, throttled = create_topic(), list[float]()
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
        with quota(broker.bootstrap, {"client-id": client_id}, **{PRODUCED: RATE}):
            rate = produce_for(SECONDS, settings, topic)
        assert 0.9 <= rate / RATE <= 1.1
        assert throttled
        assert max(throttled) > 0

    def test_librdkafka_consumes_at_its_quota(
        self, broker: AnyBroker, create_topic: CreateTopic, client_id: str
    ) -> None:
        topic = create_topic()
        confluent.write(broker.bootstrap, topic, [VALUE] * int(RATE * SECONDS * 1.5 / len(VALUE)), batch_size=100_000)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "client.id": client_id, "group.id": client_id})
        got = 0
        with quota(broker.bootstrap, {"client-id": client_id}, **{FETCHED: RATE}):
            consumer.assign([TopicPartition(topic, 0, 0)])
            begun = time.monotonic()
            while time.monotonic() - begun < SECONDS:
                got += sum(len(message.value()) for message in consumer.consume(100, 0.05))
            rate = got / (time.monotonic() - begun)
        consumer.close()
        assert 0.9 <= rate / RATE <= 1.1

    def test_other_clients_are_not_disturbed(
        self, broker: AnyBroker, create_topic: CreateTopic, client_id: str
    ) -> None:
        topic = create_topic()
        with (
            quota(broker.bootstrap, {"client-id": client_id}, **{PRODUCED: 1_000}),
            RawClient(broker.bootstrap) as slow,
            RawClient(broker.bootstrap) as other,
        ):
            slow.ask(slow.produce_request(topic, batch(Written(bytes(20_000)))), 12, client_id)
            begun = time.monotonic()
            for _ in range(50):
                answer = other.ask(other.produce_request(topic, batch(Written(bytes(20_000)))), 12, "another")
                assert answer.throttle_time_ms == 0
            assert time.monotonic() - begun < 10

    @pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")
    def test_java_produces_at_its_quota(self, broker: AnyBroker, create_topic: CreateTopic, client_id: str) -> None:
        topic = create_topic()
        with quota(broker.bootstrap, {"client-id": client_id}, **{PRODUCED: RATE}):
            done = jvm.run(
                "org.apache.kafka.tools.ProducerPerformance",
                *("--bootstrap-server", broker.bootstrap, "--command-property", f"client.id={client_id}"),
                *("--topic", topic, "--num-records", str(int(RATE * SECONDS / 1000)), "--record-size", "1000"),
                *("--throughput", "-1"),
            )
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.search(r"8000 records sent, ([\d.]+) records/sec", done.stdout)
        assert found is not None, done.stdout
        assert 0.8 <= float(found[1]) * 1000 / RATE <= 1.1, "the first second may be the JVM's"


class TestThrottling:
    @pytest.fixture(autouse=True)
    def _own_counts(self, on_apache: bool) -> None:
        if on_apache:
            pytest.skip("Apache Kafka throttles later: its windows are longer")

    def throttled_ms(self, bootstrap: str, topic: str, client_id: str, size: int = 30_000) -> int:
        with RawClient(bootstrap) as client:
            answer = client.ask(client.produce_request(topic, batch(Written(bytes(size)))), 12, client_id)
            assert answer.responses[0].partition_responses[0].error_code == 0
            return int(answer.throttle_time_ms)

    def test_the_connection_is_muted_for_the_time_in_its_response(
        self, broker: AnyBroker, create_topic: CreateTopic, client_id: str
    ) -> None:
        topic = create_topic()
        with (
            quota(broker.bootstrap, {"client-id": client_id}, **{PRODUCED: 50_000}),
            RawClient(broker.bootstrap) as client,
        ):
            begun = time.monotonic()
            answer = client.ask(client.produce_request(topic, batch(Written(bytes(50_000)))), 12, client_id)
            assert time.monotonic() - begun < 0.5, "the response leaves at once"
            assert 850 <= answer.throttle_time_ms <= 950
            client.metadata(topic)
            assert time.monotonic() - begun >= 0.85

    def test_acks_0_is_throttled_without_a_response(
        self, broker: AnyBroker, create_topic: CreateTopic, client_id: str
    ) -> None:
        topic = create_topic()
        with (
            quota(broker.bootstrap, {"client-id": client_id}, **{PRODUCED: 50_000}),
            RawClient(broker.bootstrap) as client,
        ):
            begun = time.monotonic()
            client.send(client.produce_request(topic, batch(Written(bytes(50_000))), acks=0), 12, client_id)
            client.metadata(topic)
            assert time.monotonic() - begun >= 0.85

    def test_a_fetch_is_cut_to_the_quota_and_answered_empty_while_others_share_it(
        self, broker: AnyBroker, create_topic: CreateTopic, client_id: str
    ) -> None:
        topic = create_topic()
        confluent.write(broker.bootstrap, topic, [bytes(1_000)] * 500, batch_size=10_000)
        with (
            quota(broker.bootstrap, {"client-id": client_id}, **{FETCHED: 100_000}),
            RawClient(broker.bootstrap) as one,
            RawClient(broker.bootstrap) as other,
        ):
            first = one.ask(one.fetch_request(topic, 0), 12, client_id)
            size = len(first.responses[0].partitions[0].records)
            assert 10_000 <= size <= 25_000
            assert 50 <= first.throttle_time_ms <= 200
            second = other.ask(other.fetch_request(topic, 0), 12, client_id)
            assert not second.responses
            assert second.throttle_time_ms > 0

    def test_the_most_specific_quota_holds(self, broker: AnyBroker, create_topic: CreateTopic, client_id: str) -> None:
        """The throttle time of the same request tells which quota it was."""
        topic = create_topic()
        other = f"{client_id}-other"  # has a count of its own under the default client id
        levels: list[tuple[Entity, str, int]] = [  # by rising precedence, with the time that each leads to
            ({"client-id": client_id}, client_id, 600),
            ({"user": "ANONYMOUS"}, client_id, 900),
            ({"user": "ANONYMOUS", "client-id": None}, other, 1_200),
            ({"user": "ANONYMOUS", "client-id": client_id}, client_id, 1_500),
        ]
        with RawClient(broker.bootstrap) as admin:
            try:
                for entity, client, wanted_ms in levels:
                    rate = int(30_100 / (wanted_ms / 1000 + 0.1))
                    assert alter(admin, (entity, {PRODUCED: float(rate)})) == [(0, None)]
                    found = self.throttled_ms(broker.bootstrap, topic, client)
                    assert found == pytest.approx(wanted_ms, abs=100), entity
            finally:
                alter(admin, *((entity, {PRODUCED: None}) for entity, _, _ in levels))
        assert self.throttled_ms(broker.bootstrap, topic, client_id) == 0

    def test_a_quota_that_is_removed_frees_its_clients_at_once(
        self, broker: AnyBroker, create_topic: CreateTopic, client_id: str
    ) -> None:
        topic = create_topic()
        with RawClient(broker.bootstrap) as client:
            with quota(broker.bootstrap, {"client-id": client_id}, **{PRODUCED: 1}):
                answer = client.ask(client.produce_request(topic, batch(Written(bytes(100_000)))), 12, client_id)
                assert answer.throttle_time_ms > 90_000_000
                client.send(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12, client_id)
                assert client.is_silent(0.3)
            client.read_frame()
            begun = time.monotonic()
            answer = client.ask(client.produce_request(topic, batch(Written(b"x"))), 12, client_id)
            assert answer.throttle_time_ms == 0
            assert time.monotonic() - begun < 5

    @pytest.mark.parametrize("version", [3, 12])
    def test_time_of_the_broker(self, broker: AnyBroker, client_id: str, version: int) -> None:
        with (
            quota(broker.bootstrap, {"client-id": client_id}, request_percentage=0.01),
            RawClient(broker.bootstrap) as client,
        ):
            begun, waits = time.monotonic(), list[int]()
            while time.monotonic() - begun < 2 and len(waits) < 1_000:
                asked = MetadataRequest(topics=None, allow_auto_topic_creation=False)
                waits.append(client.ask(asked, version, client_id).throttle_time_ms)
            assert any(waits)
            assert len(waits) < 500

    def test_connections_of_an_address(self, start_broker: StartBroker) -> None:
        broker = start_broker()
        with quota(broker.bootstrap, {"ip": "127.0.0.1"}, connection_creation_rate=2):
            begun = time.monotonic()
            clients = [RawClient(broker.bootstrap) for _ in range(5)]
            for client in clients:
                client.metadata("none")
            assert 1.2 <= time.monotonic() - begun < 10, "two at once, and then one each half a second"
            for client in clients:
                client.socket.close()
        broker.stop()
        broker.start()
        with RawClient(broker.bootstrap) as client:
            assert describe(client) == {}

    def test_too_many_connections_of_an_address_are_closed(self, start_broker: StartBroker) -> None:
        broker = start_broker(quota_window_num=1)
        with quota(broker.bootstrap, {"ip": None}, connection_creation_rate=1):
            clients = [RawClient(broker.bootstrap) for _ in range(4)]
            served = 0
            for client in clients:
                try:
                    client.metadata("none")
                    served += 1
                except (ConnectionEndedError, ConnectionError):
                    continue
                finally:
                    client.socket.close()
            assert 1 <= served < 4

    def test_quotas_survive_a_restart(self, start_broker: StartBroker, client_id: str) -> None:
        broker = start_broker()
        with RawClient(broker.bootstrap) as client:
            client.create_topic("t")
            assert alter(client, ({"client-id": client_id}, {PRODUCED: 1_000.0})) == [(0, None)]
        broker.stop()
        broker.start()
        with RawClient(broker.bootstrap) as client:
            assert describe(client) == {(("client-id", client_id),): {PRODUCED: 1_000.0}}
        assert self.throttled_ms(broker.bootstrap, "t", client_id) > 10_000


class TestMutations:
    def create(self, client: RawClient, partitions: int, client_id: str, version: int = 7) -> tuple[int, int]:
        """Error code and throttle time."""
        item = CreateTopicsRequest.CreatableTopic
        name = f"{client_id}-{uuid.uuid4().hex[:6]}"
        wanted = item(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        asked = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False)
        answer = client.ask(asked, version, client_id)
        return int(answer.topics[0].error_code), int(answer.throttle_time_ms)

    def test_topics_over_the_quota_are_refused(self, broker: AnyBroker, client_id: str) -> None:
        with quota(broker.bootstrap, {"client-id": client_id}, controller_mutation_rate=2):
            with RawClient(broker.bootstrap) as client:
                assert self.create(client, 30, client_id) == (0, 0)
                code, wait_ms = self.create(client, 1, client_id)
                assert code == THROTTLING_QUOTA_EXCEEDED
                assert 1_000 <= wait_ms <= 4_000
                begun = time.monotonic()
                client.metadata("none")
                assert time.monotonic() - begun >= wait_ms / 1000 - 0.1
                assert self.create(client, 1, client_id)[0] == 0
            with RawClient(broker.bootstrap) as client:
                assert self.create(client, 1, "another") == (0, 0)

    def test_older_versions_are_throttled(self, broker: AnyBroker, client_id: str) -> None:
        with (
            quota(broker.bootstrap, {"client-id": client_id}, controller_mutation_rate=2),
            RawClient(broker.bootstrap) as client,
        ):
            code, wait_ms = self.create(client, 24, client_id, version=5)
            assert code == 0
            assert 500 <= wait_ms <= 1_500

    def test_deleted_partitions_count(self, broker: AnyBroker, create_topic: CreateTopic, client_id: str) -> None:
        topics = [create_topic(partitions=25), create_topic()]
        with (
            quota(broker.bootstrap, {"client-id": client_id}, controller_mutation_rate=2),
            RawClient(broker.bootstrap) as client,
        ):
            codes = []
            for name in topics:
                states = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=uuid.UUID(int=0))]
                answer = client.ask(DeleteTopicsRequest(topics=states, timeout_ms=30_000), 6, client_id)
                codes.append(answer.responses[0].error_code)
            assert codes == [0, THROTTLING_QUOTA_EXCEEDED]


class TestProtocol:
    @pytest.fixture
    def admin(self, broker: AnyBroker, client_id: str) -> Iterator[RawClient]:
        with RawClient(broker.bootstrap) as client:
            yield client
            entities: list[Entity] = [{"user": client_id}, {"user": client_id, "client-id": None}]
            alter(client, *((entity, {PRODUCED: None, FETCHED: None}) for entity in entities))

    @pytest.mark.parametrize("version", [0, 1])
    def test_set_describe_remove(self, admin: RawClient, client_id: str, version: int) -> None:
        user, both = {"user": client_id}, {"user": client_id, "client-id": None}
        wanted = (user, {PRODUCED: 5.0, FETCHED: 6.0}), (both, {PRODUCED: 7.0})
        assert alter(admin, *wanted, dry=True, version=version) == [(0, None)] * 2
        assert describe(admin, ("user", EXACT, client_id), version=version) == {}
        assert alter(admin, *wanted, version=version) == [(0, None)] * 2
        one, two = (("user", client_id),), (("client-id", None), ("user", client_id))
        values = {one: {PRODUCED: 5.0, FETCHED: 6.0}, two: {PRODUCED: 7.0}}
        assert describe(admin, ("user", EXACT, client_id), version=version) == values
        assert describe(admin, ("user", EXACT, client_id), strict=True) == {one: values[one]}
        assert describe(admin, ("user", EXACT, client_id), ("client-id", DEFAULT, None)) == {two: values[two]}
        assert describe(admin, ("user", EXACT, client_id), ("client-id", SPECIFIED, None)) == {two: values[two]}
        assert describe(admin, ("user", EXACT, client_id), ("client-id", EXACT, "none")) == {}
        every = describe(admin, ("user", SPECIFIED, None))
        assert isinstance(every, dict)
        assert {one, two} <= every.keys()
        assert alter(admin, (user, {FETCHED: None}), (both, {PRODUCED: None})) == [(0, None)] * 2
        assert describe(admin, ("user", EXACT, client_id)) == {one: {PRODUCED: 5.0}}

    def test_each_entity_succeeds_or_fails_by_itself(self, admin: RawClient, client_id: str) -> None:
        good: Entity = {"user": client_id}
        outcomes = alter(admin, (good, {PRODUCED: 5.0}), ({"user": "m"}, {PRODUCED: 1.0, "speed": 2.0}))
        assert outcomes == [(0, None), (INVALID_REQUEST, "Invalid configuration key speed")]
        assert describe(admin, ("user", EXACT, client_id)) == {(("user", client_id),): {PRODUCED: 5.0}}
        assert describe(admin, ("user", EXACT, "m")) == {}

    @pytest.mark.parametrize(
        ("entity", "values", "words"),
        [
            ({"user": "u"}, {PRODUCED: 0.0001}, "cannot be a fractional value"),
            ({"user": "u"}, {PRODUCED: -1.0}, "must be greater than 0"),
            ({"user": "u"}, {PRODUCED: 1e30}, "too large"),
            ({"user": "u"}, {"connection_creation_rate": 1.0}, "Invalid configuration key"),
            ({"ip": "1.2.3.4"}, {PRODUCED: 1.0}, "Invalid configuration key"),
            ({"ip": "1.2.3.999"}, {"connection_creation_rate": 1.0}, "is not a valid IP"),
            ({"ip": "1.2.3.4", "user": "u"}, {"connection_creation_rate": 1.0}, "combin"),
            ({}, {PRODUCED: 1.0}, "Invalid empty client quota entity"),
            ({"group": "g"}, {PRODUCED: 1.0}, "Unhandled client quota entity type: group"),
            ({"user": ""}, {PRODUCED: 1.0}, "Empty user not supported"),
        ],
    )
    def test_bad_alterations(self, admin: RawClient, entity: Entity, values: dict[str, float], words: str) -> None:
        ((code, message),) = alter(admin, (entity, values))
        assert code == INVALID_REQUEST
        assert words in (message or "")

    @pytest.mark.parametrize(
        ("components", "code"),
        [
            ([("ip", SPECIFIED, None), ("user", SPECIFIED, None)], INVALID_REQUEST),
            ([("user", SPECIFIED, None), ("user", EXACT, "u")], INVALID_REQUEST),
            ([("", SPECIFIED, None)], INVALID_REQUEST),
            ([("group", SPECIFIED, None)], UNSUPPORTED_VERSION),
            ([("user", EXACT, None)], INVALID_REQUEST),
            ([("user", DEFAULT, "u")], INVALID_REQUEST),
            ([("user", SPECIFIED, "u")], INVALID_REQUEST),
            ([("user", 7, None)], INVALID_REQUEST),
        ],
    )
    def test_bad_filters(self, admin: RawClient, components: list[tuple[str, int, str | None]], code: int) -> None:
        assert describe(admin, *components) == code

    def test_no_types_and_strict_is_nothing(self, admin: RawClient) -> None:
        assert describe(admin, strict=True) == {}

    @pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")
    def test_kafkas_own_tool(self, broker: AnyBroker, admin: RawClient, client_id: str) -> None:
        where = ("--bootstrap-server", broker.bootstrap, "--entity-type", "users", "--entity-name", client_id)
        done = jvm.run("kafka.admin.ConfigCommand", *where, "--alter", "--add-config", f"{PRODUCED}=1024")
        assert done.returncode == 0, done.stdout + done.stderr
        assert describe(admin, ("user", EXACT, client_id)) == {(("user", client_id),): {PRODUCED: 1024.0}}
