"""Committed offsets and groups byte by byte: every version, every error that a request without members can meet."""

import uuid
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import TxnOffsetCommitRequest

from moldau.wire.records import decode_records
from support.brokers.disk import stored_batches
from support.brokers.processes import CreateTopic, StartBroker
from support.clients.raw import NO_TOPIC, RawClient

NONE, UNKNOWN_TOPIC_OR_PARTITION, METADATA_TOO_LARGE = 0, 3, 12
NOT_READY = {14, 15, 16}  # loading, not available, not coordinator
ILLEGAL_GENERATION, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND = 22, 24, 25, 69
INVALID_PRODUCER_ID_MAPPING, UNKNOWN_TOPIC_ID = 49, 100
BY_TOPIC_ID = 10
NO_SUCH_ID = UUID(int=404)
OFFSETS = "__consumer_offsets"
GROUP_OPERATIONS = {3, 6, 8, 10, 11}  # read, delete, describe, describe and alter settings


class Groups:
    """The requests of these tests in short. Offsets are given as {topic: {partition: offset}}; ids stand for topics."""

    def __init__(self, raw: RawClient, group: str) -> None:
        self.raw = raw
        self.group = group

    def _until_ready(self, ask: Callable[[], Any], error_of: Callable[[Any], int]) -> Any:
        while True:
            self.raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]), 4)
            answer = ask()
            if error_of(answer) not in NOT_READY:
                return answer

    def commit(self, offsets: dict[Any, dict[int, int]], version: int = 9, **more: Any) -> dict[tuple[Any, int], int]:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        topics = [
            topic(
                name="" if isinstance(name, UUID) else name,
                topic_id=name if isinstance(name, UUID) else NO_TOPIC,
                partitions=[
                    topic.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=more.get("leader_epoch", -1),
                        committed_metadata=more.get("metadata", ""),
                    )
                    for partition, offset in partitions.items()
                ],
            )
            for name, partitions in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=more.get("group", self.group),
            generation_id_or_member_epoch=more.get("generation", -1),
            member_id=more.get("member", ""),
            group_instance_id=None,
            retention_time_ms=more.get("retention", -1),
            topics=topics,
        )
        answer = self._until_ready(
            lambda: self.raw.ask(request, version),
            lambda answer: max((one.error_code for topic in answer.topics for one in topic.partitions), default=0),
        )
        return {
            (topic.name if version < BY_TOPIC_ID else UUID(str(topic.topic_id)), one.partition_index): one.error_code
            for topic in answer.topics
            for one in topic.partitions
        }

    def fetch(self, topics: dict[Any, list[int]] | None, version: int = 9, group: str | None = None) -> Any:
        """By topic and partition: offset, leader epoch, metadata, error."""
        group_id = self.group if group is None else group
        asked = OffsetFetchRequest.OffsetFetchRequestGroup
        new, old = asked.OffsetFetchRequestTopics, OffsetFetchRequest.OffsetFetchRequestTopic
        listed = None
        if topics is not None:
            listed = [
                (new if version >= 8 else old)(
                    name="" if isinstance(name, UUID) else name,
                    topic_id=name if isinstance(name, UUID) else NO_TOPIC,
                    partition_indexes=partitions,
                )
                if version >= 8
                else old(name=name, partition_indexes=partitions)
                for name, partitions in topics.items()
            ]
        if version >= 8:
            one = asked(group_id=group_id, member_id=None, member_epoch=-1, topics=listed)
            request = OffsetFetchRequest(groups=[one], require_stable=False)
        else:
            request = OffsetFetchRequest(group_id=group_id, topics=listed, require_stable=False)
        answer = self._until_ready(
            lambda: self.raw.ask(request, version),
            lambda answer: 0 if version < 2 else (answer.groups[0] if version >= 8 else answer).error_code,
        )
        found = answer.groups[0] if version >= 8 else answer
        assert version < 2 or found.error_code == NONE
        return {
            (topic.name if version < BY_TOPIC_ID else UUID(str(topic.topic_id)), one.partition_index): (
                one.committed_offset,
                one.committed_leader_epoch if version >= 5 else -1,
                one.metadata,
                one.error_code,
            )
            for topic in found.topics
            for one in topic.partitions
        }

    def delete(self, topics: dict[str, list[int]], group: str | None = None) -> tuple[int, dict[tuple[str, int], int]]:
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        request = OffsetDeleteRequest(
            group_id=self.group if group is None else group,
            topics=[
                topic(
                    name=name,
                    partitions=[topic.OffsetDeleteRequestPartition(partition_index=each) for each in partitions],
                )
                for name, partitions in topics.items()
            ],
        )
        answer = self.raw.ask(request, 0)
        return answer.error_code, {
            (each.name, one.partition_index): one.error_code for each in answer.topics for one in each.partitions
        }


@pytest.fixture
def groups(raw: RawClient) -> Groups:
    return Groups(raw, f"raw-{uuid.uuid4().hex[:12]}")


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_in_every_version(groups: Groups, create_topic: CreateTopic, version: int) -> None:
    name = create_topic(partitions=2)
    topic = groups.raw.topic_id(name) if version >= BY_TOPIC_ID else name
    told = groups.commit({topic: {0: 7, 1: 8}}, version, leader_epoch=0 if version >= 6 else -1, metadata="note")
    assert told == {(topic, 0): NONE, (topic, 1): NONE}
    epoch = 0 if version >= 6 else -1
    assert groups.fetch({name: [1]}) == {(name, 1): (8, epoch, "note", NONE)}


@pytest.mark.parametrize("version", range(1, 11))
def test_fetch_in_every_version(groups: Groups, create_topic: CreateTopic, version: int) -> None:
    name = create_topic(partitions=2)
    groups.commit({name: {0: 7}}, leader_epoch=3, metadata="note")
    topic = groups.raw.topic_id(name) if version >= BY_TOPIC_ID else name
    epoch = 3 if version >= 5 else -1
    committed, none = (7, epoch, "note", NONE), (-1, -1, "", NONE)
    assert groups.fetch({topic: [0, 1, 9]}, version) == {(topic, 0): committed, (topic, 1): none, (topic, 9): none}
    assert groups.fetch({topic: [0]}, version, group="nobody") == {(topic, 0): none}
    if version >= 2:
        assert groups.fetch(None, version) == {(topic, 0): committed}
        assert groups.fetch(None, version, group="nobody") == {}


def test_partitions_that_do_not_exist_are_refused_each_by_itself(groups: Groups, create_topic: CreateTopic) -> None:
    name = create_topic()
    told = groups.commit({name: {0: 1, 5: 1}, "no-such-topic": {0: 1}})
    assert list(told.items()) == [
        ((name, 5), UNKNOWN_TOPIC_OR_PARTITION),
        ((name, 0), NONE),
        (("no-such-topic", 0), UNKNOWN_TOPIC_OR_PARTITION),
    ]
    topic = groups.raw.topic_id(name)
    told = groups.commit({topic: {0: 2}, NO_SUCH_ID: {0: 2}}, 10)
    assert told == {(NO_SUCH_ID, 0): UNKNOWN_TOPIC_ID, (topic, 0): NONE}
    found = groups.fetch({NO_SUCH_ID: [0], topic: [0]}, 10)
    assert list(found.items()) == [((topic, 0), (2, -1, "", NONE)), ((NO_SUCH_ID, 0), (-1, -1, "", UNKNOWN_TOPIC_ID))]


def test_metadata_has_a_limit(groups: Groups, create_topic: CreateTopic) -> None:
    name = create_topic()
    assert groups.commit({name: {0: 1}}, metadata="x" * 4096) == {(name, 0): NONE}
    assert groups.commit({name: {0: 2}}, metadata="x" * 4097) == {(name, 0): METADATA_TOO_LARGE}
    assert groups.commit({name: {0: 3}}, metadata=None) == {(name, 0): NONE}
    assert groups.fetch({name: [0]}) == {(name, 0): (3, -1, "", NONE)}


def test_only_members_have_generations(groups: Groups, create_topic: CreateTopic) -> None:
    name = create_topic()
    assert groups.commit({name: {0: 1}}, generation=0, member="m") == {(name, 0): GROUP_ID_NOT_FOUND}
    assert groups.commit({name: {0: 1}}, 8, generation=0, member="m") == {(name, 0): ILLEGAL_GENERATION}
    assert groups.fetch(None) == {}
    groups.commit({name: {0: 1}})
    assert groups.commit({name: {0: 2}}, generation=0, member="m") == {(name, 0): UNKNOWN_MEMBER_ID}
    assert groups.commit({"no-such-topic": {0: 2}}, generation=0, member="m") == {
        ("no-such-topic", 0): UNKNOWN_TOPIC_OR_PARTITION
    }
    assert groups.fetch(None) == {(name, 0): (1, -1, "", NONE)}


def test_delete_offsets(groups: Groups, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    groups.commit({name: {0: 1, 1: 2}})
    assert groups.delete({name: [0]}, group="nobody") == (GROUP_ID_NOT_FOUND, {})
    assert groups.delete({name: [0]}, group="") == (INVALID_GROUP_ID, {})
    told = groups.delete({name: [0, 7], "no-such-topic": [0]})
    assert told == (
        NONE,
        {
            (name, 7): UNKNOWN_TOPIC_OR_PARTITION,
            (name, 0): NONE,
            ("no-such-topic", 0): UNKNOWN_TOPIC_OR_PARTITION,
        },
    )
    assert groups.fetch(None) == {(name, 1): (2, -1, "", NONE)}


@pytest.mark.parametrize("version", range(6))
def test_list_groups(groups: Groups, create_topic: CreateTopic, version: int) -> None:
    groups.commit({create_topic(): {0: 1}})

    def listed(**filters: list[str]) -> list[Any]:
        answer = groups.raw.ask(ListGroupsRequest(**{"states_filter": [], "types_filter": []} | filters), version)
        assert answer.error_code == NONE
        return [each for each in answer.groups if each.group_id == groups.group]

    (found,) = listed()
    assert found.protocol_type == ""
    if version >= 4:
        assert found.group_state == "Empty"
        assert listed(states_filter=["EMPTY", "never heard of"])
        assert not listed(states_filter=["Stable"])
        assert not listed(states_filter=["never heard of"])
    if version >= 5:
        assert found.group_type == "classic"
        assert listed(types_filter=["Classic"])
        assert not listed(types_filter=["consumer"])
        assert not listed(types_filter=["never heard of"])
        assert not listed(types_filter=["classic"], states_filter=["Stable"])


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(groups: Groups, create_topic: CreateTopic, version: int) -> None:
    groups.commit({create_topic(): {0: 1}})
    request = DescribeGroupsRequest(groups=[groups.group, "nobody"], include_authorized_operations=version >= 3)
    told = {each.group_id: each for each in groups.raw.ask(request, version).groups}
    ours, nobody = told[groups.group], told["nobody"]
    assert (ours.error_code, ours.group_state, ours.protocol_type, ours.members) == (NONE, "Empty", "", [])
    assert nobody.group_state == "Dead"
    assert nobody.error_code == (GROUP_ID_NOT_FOUND if version >= 6 else NONE)
    if version >= 6:
        assert nobody.error_message == "Group nobody not found."
    if version >= 3:
        assert ours.authorized_operations == GROUP_OPERATIONS
        assert version >= 6 or nobody.authorized_operations == GROUP_OPERATIONS


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(groups: Groups, create_topic: CreateTopic, version: int) -> None:
    name = create_topic()
    groups.commit({name: {0: 1}})
    request = DeleteGroupsRequest(groups_names=[groups.group, "nobody"])
    told = {each.group_id: each.error_code for each in groups.raw.ask(request, version).results}
    assert told == {groups.group: NONE, "nobody": GROUP_ID_NOT_FOUND}
    assert groups.fetch({name: [0]}) == {(name, 0): (-1, -1, "", NONE)}


def test_the_group_without_a_name_may_commit_and_go(groups: Groups, create_topic: CreateTopic) -> None:
    """What clients of old did: Kafka keeps it possible."""
    name = create_topic()
    assert groups.commit({name: {0: 1}}, group="") == {(name, 0): NONE}
    assert groups.fetch({name: [0]}, group="") == {(name, 0): (1, -1, "", NONE)}
    told = groups.raw.ask(DeleteGroupsRequest(groups_names=[""]), 2).results
    assert [(each.group_id, each.error_code) for each in told] == [("", NONE)]


@pytest.mark.parametrize("version", range(6))
def test_offsets_in_a_transaction_that_nobody_began(groups: Groups, create_topic: CreateTopic, version: int) -> None:
    name = create_topic()
    groups.commit({name: {0: 1}})
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic

    def commit(group: str) -> dict[tuple[str, int], int]:
        request = TxnOffsetCommitRequest(
            transactional_id=f"t-{groups.group}",
            group_id=group,
            producer_id=1,
            producer_epoch=0,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                topic(
                    name=asked,
                    partitions=[
                        topic.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=9, committed_leader_epoch=-1, committed_metadata=""
                        )
                    ],
                )
                for asked in (name, "no-such-topic")
            ],
        )
        while True:
            groups.raw.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[request.transactional_id]), 4)
            answer = groups.raw.ask(request, version)
            told = {
                (each.name, one.partition_index): one.error_code for each in answer.topics for one in each.partitions
            }
            if not NOT_READY & set(told.values()):
                return told

    unknown = {("no-such-topic", 0): UNKNOWN_TOPIC_OR_PARTITION}
    assert commit(groups.group) == unknown | {(name, 0): INVALID_PRODUCER_ID_MAPPING}
    assert commit("") == unknown | {(name, 0): INVALID_GROUP_ID}
    assert groups.fetch({name: [0]}) == {(name, 0): (1, -1, "", NONE)}


def test_pipelined_commits_are_answered_in_order_and_share_batches(start_broker: StartBroker) -> None:
    broker = start_broker(offsets_topic_num_partitions=1)
    count = 200  # more than the replies that may wait on one connection
    with RawClient(broker.bootstrap) as raw:
        raw.create_topic("orders")
        groups = Groups(raw, "pipelined")
        assert groups.commit({"orders": {0: 0}}) == {("orders", 0): NONE}
        before = stored_batches(broker, OFFSETS)
        requests = [_commit_request("pipelined", "orders", offset) for offset in range(1, count + 1)]
        raw.socket.sendall(b"".join(raw.frame(request, 9) for request in requests))
        for request in requests:
            assert raw.receive(request).topics[0].partitions[0].error_code == NONE
        assert groups.fetch({"orders": [0]})["orders", 0][0] == count
        added = stored_batches(broker, OFFSETS)[len(before) :]
        values = [record.value for batch in added for record in decode_records(batch.raw, limit=1 << 20)]
        assert [int.from_bytes((value or b"")[2:10], "big") for value in values] == list(range(1, count + 1))
        assert len(added) < count / 4


def _commit_request(group: str, topic: str, offset: int) -> OffsetCommitRequest:
    item = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = item.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[item(name=topic, topic_id=NO_TOPIC, partitions=[partition])],
    )


def test_offsets_expire_and_their_group_with_the_last_one(start_broker: StartBroker) -> None:
    broker = start_broker(offsets_retention_check_interval_ms=100, offsets_topic_num_partitions=2)
    with RawClient(broker.bootstrap) as raw:
        groups = Groups(raw, "g")
        raw.create_topic("t")
        assert groups.commit({"t": {0: 7}}, 4, retention=1) == {("t", 0): NONE}
        assert groups.commit({"t": {0: 8}}, 4, group="kept", retention=600_000) == {("t", 0): NONE}
        while [each.group_id for each in raw.ask(ListGroupsRequest(), 0).groups] != ["kept"]:
            pass
        assert groups.fetch({"t": [0]}) == {("t", 0): (-1, -1, "", NONE)}
        assert groups.fetch({"t": [0]}, group="kept") == {("t", 0): (8, -1, "", NONE)}


def test_offsets_go_with_their_topic_and_come_back_after_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker(offsets_topic_num_partitions=2)
    with RawClient(broker.bootstrap) as raw:
        groups = Groups(raw, "g")
        for name in ("gone", "kept"):
            raw.create_topic(name)
        groups.commit({"gone": {0: 7}, "kept": {0: 8}})
        assert raw.delete_topics(["gone"]) == [NONE]
        while groups.fetch({"gone": [0]}) != {("gone", 0): (-1, -1, "", NONE)}:
            pass
    broker.kill()
    broker.start()
    with RawClient(broker.bootstrap) as raw:
        groups = Groups(raw, "g")
        raw.create_topic("gone")
        assert groups.fetch(None) == {("kept", 0): (8, -1, "", NONE)}
