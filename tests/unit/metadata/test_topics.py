"""Topic decisions: codes and texts as Apache Kafka 4.3.1 answered them to the same questions."""

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.metadata.changes import BrokerConfigured, PartitionsAdded, TopicCreated, TopicDeleted, apply
from moldau.metadata.image import Broker, ClusterImage, PartitionState
from moldau.metadata.reassignment import reassign
from moldau.metadata.topics import (
    MAX_NEW_PARTITIONS,
    TopicDefaults,
    TopicSpec,
    add_partitions,
    create_topic,
    delete_topic,
)

ONE_BROKER = ClusterImage(brokers={1: Broker(1, {})})
THREE_BROKERS = ClusterImage(brokers={i: Broker(i, {}) for i in (1, 2, 3)})


def create(image: ClusterImage, name: str, partitions: int = 1, replication: int = 1, assignment=()):
    spec = TopicSpec(name, partitions, replication, assignment)
    return create_topic(image, spec, topic_id=uuid4(), defaults=TopicDefaults(partitions=3, replication=1))


def with_topics(
    *names: str, image: ClusterImage = ONE_BROKER, partitions: int = 2, replication: int = 1
) -> ClusterImage:
    for name in names:
        image = apply(image, create(image, name, partitions, replication))
    return image


BAD_CHARACTERS = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("", WireError.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (".", WireError.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
        ("..", WireError.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
        (
            "x" * 250,
            WireError.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
        ),
        ("a b", WireError.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: 'a b' {BAD_CHARACTERS}"),
        ("ä", WireError.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: 'ä' {BAD_CHARACTERS}"),
        ("a/b", WireError.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: 'a/b' {BAD_CHARACTERS}"),
        ("a\n", WireError.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: 'a\n' {BAD_CHARACTERS}"),
        ("a.b", WireError.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists."),
        ("a_b", WireError.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b"),
        (
            "__cluster_metadata",
            WireError.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
    ],
)
def test_names_that_are_refused(name: str, error: WireError, message: str) -> None:
    assert create(with_topics("a.b"), name) == Refusal(error, message)


@pytest.mark.parametrize("name", ["x" * 249, "a", "A-Z_0.9", "...", "a.b_c", "__consumer_offsets"])
def test_names_that_are_fine(name: str) -> None:
    assert isinstance(create(with_topics("a.b", "ab"), name), TopicCreated)


def test_an_existing_topic_is_told_before_bad_counts() -> None:
    assert create(with_topics("t"), "t", partitions=0).error is WireError.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("partitions", [0, -2])
def test_partition_counts_below_1_are_refused(partitions: int) -> None:
    message = "Number of partitions was set to an invalid non-positive value."
    assert create(ONE_BROKER, "t", partitions, 2) == Refusal(WireError.INVALID_PARTITIONS, message)


@pytest.mark.parametrize("replication", [0, -2])
def test_replication_below_1_is_refused(replication: int) -> None:
    message = "Replication factor must be larger than 0, or -1 to use the default value."
    assert create(ONE_BROKER, "t", 1, replication) == Refusal(WireError.INVALID_REPLICATION_FACTOR, message)


def test_replication_above_the_brokers_is_refused() -> None:
    refusal = create(ONE_BROKER, "t", 1, 2)
    assert refusal.error is WireError.INVALID_REPLICATION_FACTOR
    assert refusal.message.startswith(
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached "
        "because only 1 broker(s) are registered or some brokers have all their log directories cordoned"
    )


def test_a_cordoned_broker_gets_nothing_new() -> None:
    image = apply(THREE_BROKERS, BrokerConfigured("2", {"cordoned.log.dirs": "*"}))
    created = create(image, "t", 6, 2)
    assert {broker for state in created.partitions for broker in state.replicas} == {1, 3}
    assert create(image, "t", 1, 3).error is WireError.INVALID_REPLICATION_FACTOR
    grown = add_partitions(apply(image, created), "t", 12)
    assert {broker for state in grown.partitions for broker in state.replicas} == {1, 3}


def test_the_most_partitions_of_one_request() -> None:
    assert isinstance(create(ONE_BROKER, "t", MAX_NEW_PARTITIONS), TopicCreated)
    refusal = Refusal(WireError.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    assert create(ONE_BROKER, "t", MAX_NEW_PARTITIONS + 1) == refusal
    assert create(ONE_BROKER, "t", -1, -1, [(i, [1]) for i in range(MAX_NEW_PARTITIONS + 1)]) == refusal
    assert add_partitions(with_topics("t"), "t", MAX_NEW_PARTITIONS + 3) == refusal


def test_minus_one_means_the_brokers_default() -> None:
    change = create(ONE_BROKER, "t", -1, -1)
    assert isinstance(change, TopicCreated)
    assert change.partitions == tuple(PartitionState(i, (1,), (1,), leader=1) for i in range(3))


def test_a_topic_keeps_the_config_it_was_asked_for() -> None:
    spec = TopicSpec("t", config={"retention.ms": "1"})
    change = create_topic(ONE_BROKER, spec, topic_id=uuid4(), defaults=TopicDefaults())
    assert apply(ONE_BROKER, change).topics["t"].config == {"retention.ms": "1"}


INCLUDES = "The manual partition assignment includes"


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ([(0, [7])], f"{INCLUDES} broker 7, but no such broker is registered."),
        ([(0, [1, 7])], f"{INCLUDES} broker 7, but no such broker is registered."),
        ([(0, [-1])], f"{INCLUDES} broker -1, but no such broker is registered."),
        ([(0, [1, 1])], f"{INCLUDES} the broker 1 more than once."),
        ([(0, [])], f"{INCLUDES} an empty replica list."),
        ([(0, [1]), (2, [1])], "partitions should be a consecutive 0-based integer sequence"),
        ([(1, [1])], "partitions should be a consecutive 0-based integer sequence"),
        ([(-1, [1]), (0, [1])], "partitions should be a consecutive 0-based integer sequence"),
        ([(0, [1]), (0, [1])], "Found multiple manual partition assignments for partition 0"),
        (
            [(0, [1]), (1, [1, 2])],
            f"{INCLUDES} a partition with 2 replica(s), but this is not consistent with previous partitions, "
            "which have 1 replica(s).",
        ),
    ],
)
def test_assignments_that_are_refused(assignment, message: str) -> None:
    refusal = Refusal(WireError.INVALID_REPLICA_ASSIGNMENT, message)
    assert create(THREE_BROKERS, "t", -1, -1, assignment) == refusal


@pytest.mark.parametrize(
    ("partitions", "replication", "what"),
    [(2, -1, "numPartitions"), (-1, 1, "replication factor"), (2, 1, "replication factor")],
)
def test_counts_beside_an_assignment_are_refused(partitions: int, replication: int, what: str) -> None:
    message = f"A manual partition assignment was specified, but {what} was not set to -1."
    assert create(ONE_BROKER, "t", partitions, replication, [(0, [1])]) == Refusal(WireError.INVALID_REQUEST, message)


def test_an_assignment_is_taken_as_given_in_any_order() -> None:
    change = create(THREE_BROKERS, "t", -1, -1, [(1, [3, 1]), (0, [2, 3])])
    assert change.partitions == (
        PartitionState(0, (2, 3), (2, 3), leader=2),
        PartitionState(1, (3, 1), (3, 1), leader=3),
    )


@pytest.mark.parametrize("topic_id", [UUID(int=0), UUID(int=1)])
def test_a_reserved_id_is_a_mistake_of_the_program(topic_id: UUID) -> None:
    with pytest.raises(ValueError, match="cannot become"):
        create_topic(ONE_BROKER, TopicSpec("t"), topic_id=topic_id, defaults=TopicDefaults())


def test_an_id_in_use_is_a_mistake_of_the_program() -> None:
    image = with_topics("t")
    with pytest.raises(ValueError, match="cannot become"):
        create_topic(image, TopicSpec("u"), topic_id=image.topics["t"].id, defaults=TopicDefaults())


@pytest.mark.parametrize(
    ("total", "message"),
    [
        (2, "Topic already has 2 partition(s)."),
        (1, "The topic t currently has 2 partition(s); 1 would not be an increase."),
        (0, "The topic t currently has 2 partition(s); 0 would not be an increase."),
        (-1, "The topic t currently has 2 partition(s); -1 would not be an increase."),
    ],
)
def test_a_topic_only_grows(total: int, message: str) -> None:
    assert add_partitions(with_topics("t"), "t", total) == Refusal(WireError.INVALID_PARTITIONS, message)


@pytest.mark.parametrize(
    ("total", "assignment", "message"),
    [
        (4, [[1]], "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."),
        (3, [[1], [1]], "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified."),
        (3, [], "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified."),
        (3, [[7]], f"{INCLUDES} broker 7, but no such broker is registered."),
        (3, [[1, 1]], f"{INCLUDES} the broker 1 more than once."),
        (3, [[]], f"{INCLUDES} an empty replica list."),
    ],
)
def test_growth_with_a_bad_assignment_is_refused(total: int, assignment, message: str) -> None:
    refusal = Refusal(WireError.INVALID_REPLICA_ASSIGNMENT, message)
    assert add_partitions(with_topics("t"), "t", total, assignment) == refusal


def test_growth_keeps_the_replication_factor() -> None:
    image = with_topics("t", image=THREE_BROKERS, replication=2)
    change = add_partitions(image, "t", 5)
    assert isinstance(change, PartitionsAdded)
    assert [state.index for state in change.partitions] == [2, 3, 4]
    assert {len(state.replicas) for state in change.partitions} == {2}
    refusal = add_partitions(image, "t", 3, [[1]])
    assert "with 1 replica(s)" in refusal.message


def test_growing_what_is_not_there_is_an_unknown_topic() -> None:
    assert add_partitions(ONE_BROKER, "t", 3).error is WireError.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_deleted_by_name_or_by_id() -> None:
    image = with_topics("t", "u")
    assert delete_topic(image, name="t") == TopicDeleted("t")
    assert delete_topic(image, topic_id=image.topics["u"].id) == TopicDeleted("u")
    assert delete_topic(image, name="nope").error is WireError.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_topic(image, topic_id=uuid4()) == Refusal(
        WireError.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
    )


def test_a_topic_made_again_has_another_id() -> None:
    image = with_topics("t")
    old = image.topics["t"]
    image = with_topics("t", image=apply(image, TopicDeleted("t")))
    assert image.topics["t"].id != old.id
    assert old.id not in image.topics_by_id


def test_partitions_that_are_added_have_as_many_replicas_as_the_topic_even_while_one_is_moved() -> None:
    image = ClusterImage(brokers={i: Broker(i, {}) for i in range(1, 7)})
    image = apply(image, create(image, "t", partitions=-1, replication=-1, assignment=[(0, (1, 2)), (1, (2, 3))]))
    image = apply(image, reassign(image, "t", 0, (5, 6)))
    assert len(image.topics["t"].partitions[0].replicas) == 4
    added = add_partitions(image, "t", 4)
    assert isinstance(added, PartitionsAdded)
    assert [len(state.replicas) for state in added.partitions] == [2, 2]
    assert isinstance(add_partitions(image, "t", 3, [(1, 4)]), PartitionsAdded)


def test_a_broker_that_is_being_shut_down_gets_nothing_new_to_do() -> None:
    brokers = THREE_BROKERS.brokers
    image = ClusterImage(brokers={**brokers, 2: replace(brokers[2], leaving=True)})
    two = create(image, "t", partitions=6, replication=2)
    assert all(set(state.replicas) == set(state.isr) == {1, 3} for state in two.partitions)
    three = create(image, "u", partitions=6, replication=3)
    assert all(set(state.replicas) == {1, 2, 3} and set(state.isr) == {1, 3} for state in three.partitions)
    assert all(state.leader in state.isr for state in three.partitions)
    chosen = create(image, "v", partitions=-1, replication=-1, assignment=[(0, (2, 3))])
    assert [(state.isr, state.leader) for state in chosen.partitions] == [((3,), 3)]
