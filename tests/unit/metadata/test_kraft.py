"""A metadata log of Apache Kafka becomes topics. The records here only need the names of the real ones."""

from dataclasses import dataclass
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from moldau.metadata.image import PartitionState
from moldau.metadata.kraft import adopt, image_from_kraft

TOPIC, BROKER, GROUP = 2, 4, 32


@dataclass
class TopicRecord:
    name: str
    topic_id: UUID


@dataclass
class RemoveTopicRecord:
    topic_id: UUID


@dataclass
class PartitionRecord:
    topic_id: UUID
    partition_id: int
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0


@dataclass
class PartitionChangeRecord:
    topic_id: UUID
    partition_id: int
    isr: list[int] | None = None
    leader: int = -2
    replicas: list[int] | None = None


@dataclass
class ConfigRecord:
    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass
class FeatureLevelRecord:
    name: str
    feature_level: int


@dataclass
class ProducerIdsRecord:
    next_producer_id: int


class BeginTransactionRecord: ...


class EndTransactionRecord: ...


class AbortTransactionRecord: ...


def test_topics_come_with_ids_partitions_and_configs() -> None:
    a, b = uuid4(), uuid4()
    image = image_from_kraft(
        [
            SimpleNamespace(anything="else"),
            TopicRecord("b", b),
            PartitionRecord(b, 1, [1], [1], 1, leader_epoch=4),
            PartitionRecord(b, 0, [1, 2], [1], 1),
            ConfigRecord(TOPIC, "b", "cleanup.policy", "compact"),
            ConfigRecord(BROKER, "", "log.retention.ms", "5"),
            ConfigRecord(GROUP, "g", "consumer.session.timeout.ms", "50000"),
            ConfigRecord(GROUP, "gone", "consumer.session.timeout.ms", "50000"),
            ConfigRecord(GROUP, "gone", "consumer.session.timeout.ms", None),
            FeatureLevelRecord("metadata.version", 29),
            TopicRecord("a", a),
            PartitionRecord(a, 0, [1], [1], 1),
        ]
    )
    assert [(topic.name, topic.id, len(topic.partitions)) for topic in image.topics] == [("a", a, 1), ("b", b, 2)]
    assert image.topics[1].config == {"cleanup.policy": "compact"}
    assert image.topics[1].partitions[1] == PartitionState(1, (1,), (1,), 1, leader_epoch=4)
    assert image.broker_configs == {"": {"log.retention.ms": "5"}}
    assert image.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}
    assert image.features == {"metadata.version": 29}


def test_a_partition_change_touches_only_what_it_names() -> None:
    topic_id = uuid4()
    records = [TopicRecord("t", topic_id), PartitionRecord(topic_id, 0, [1, 2], [1, 2], 1, leader_epoch=3)]
    (topic,) = image_from_kraft([*records, PartitionChangeRecord(topic_id, 0, isr=[1])]).topics
    assert topic.partitions == (PartitionState(0, (1, 2), (1,), 1, leader_epoch=3, partition_epoch=1),)
    (topic,) = image_from_kraft([*records, PartitionChangeRecord(topic_id, 0, leader=-1)]).topics
    assert topic.partitions == (PartitionState(0, (1, 2), (1, 2), -1, leader_epoch=4, partition_epoch=1),)
    (topic,) = image_from_kraft([*records, PartitionChangeRecord(topic_id, 0, leader=1, replicas=[1])]).topics
    assert topic.partitions == (PartitionState(0, (1,), (1, 2), 1, leader_epoch=4, partition_epoch=1),)


def test_a_removed_topic_leaves_nothing_to_its_successor() -> None:
    old, new = uuid4(), uuid4()
    image = image_from_kraft(
        [
            TopicRecord("t", old),
            PartitionRecord(old, 0, [1], [1], 1),
            ConfigRecord(TOPIC, "t", "cleanup.policy", "compact"),
            RemoveTopicRecord(old),
            TopicRecord("t", new),
            PartitionRecord(new, 0, [1], [1], 1),
        ]
    )
    (topic,) = image.topics
    assert (topic.id, topic.config) == (new, {})


def test_a_config_without_a_value_is_gone() -> None:
    topic_id = uuid4()
    image = image_from_kraft(
        [
            TopicRecord("t", topic_id),
            ConfigRecord(TOPIC, "t", "retention.ms", "1"),
            ConfigRecord(TOPIC, "t", "retention.ms", "2"),
            ConfigRecord(TOPIC, "t", "segment.ms", "1"),
            ConfigRecord(TOPIC, "t", "segment.ms", None),
        ]
    )
    assert image.topics[0].config == {"retention.ms": "2"}


@pytest.mark.parametrize(
    ("ending", "names"),
    [([EndTransactionRecord()], ["a", "b", "c"]), ([AbortTransactionRecord()], ["a", "c"]), ([], ["a"])],
)
def test_a_transaction_of_the_log_counts_only_when_it_has_ended(ending: list[object], names: list[str]) -> None:
    records = [TopicRecord("a", uuid4()), BeginTransactionRecord(), TopicRecord("b", uuid4()), *ending]
    image = image_from_kraft([*records, TopicRecord("c", uuid4())])
    assert [topic.name for topic in image.topics] == names


def test_producer_ids_already_given_out_are_known() -> None:
    assert image_from_kraft([ProducerIdsRecord(1000), ProducerIdsRecord(3000)]).next_producer_id == 3000
    assert image_from_kraft([]).next_producer_id == 0


def test_a_log_with_holes_is_refused_not_guessed_at() -> None:
    topic_id = uuid4()
    with pytest.raises(ValueError, match="lacks partitions of topic t"):
        image_from_kraft([TopicRecord("t", topic_id), PartitionRecord(topic_id, 1, [1], [1], 1)])
    with pytest.raises(ValueError, match="before creating it"):
        image_from_kraft([PartitionChangeRecord(topic_id, 0, isr=[1])])


def test_an_adopted_topic_is_led_here_under_the_next_epoch() -> None:
    topic_id = uuid4()
    records = [
        TopicRecord("t", topic_id),
        PartitionRecord(topic_id, 0, [3, 4], [4], 4, leader_epoch=7, partition_epoch=9),
        ConfigRecord(TOPIC, "t", "cleanup.policy", "compact"),
    ]
    (topic,) = image_from_kraft(records).topics
    change = adopt(topic, 1)
    assert (change.topic, change.topic_id, change.config) == ("t", topic_id, {"cleanup.policy": "compact"})
    assert change.partitions == (PartitionState(0, (1,), (1,), 1, leader_epoch=8, partition_epoch=0),)
