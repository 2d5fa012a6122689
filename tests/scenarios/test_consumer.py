"""Scripts of the consumer group protocol (KIP-848): both kinds of members, every step of theirs, every error."""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from uuid import NAMESPACE_OID, UUID, uuid5

import pytest

from moldau.groups import records
from moldau.groups.consumer.group import ConsumerGroup, Member
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics, TopicView
from moldau.groups.shard import GroupShard
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupTopicPartitions
from moldau.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
    read_assignment,
    write_assignment,
    write_subscription,
)
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest
from moldau.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest
from moldau.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from moldau.wire.messages.offset_fetch import OffsetFetchGroup, OffsetFetchTopic
from moldau.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest
from scenarios.script import Command, Verb, run_script, scripts
from scenarios.stage import Stage, show


def topic_id(name: str) -> UUID:
    return uuid5(NAMESPACE_OID, name)


def partitions_of(text: str) -> dict[str, tuple[int, ...]]:
    """`t:0+1,u:2`."""
    pairs = (each.split(":") for each in text.split(",") if each)
    return {name: tuple(int(number) for number in numbers.split("+") if number) for name, numbers in pairs}


def protocol_topics(text: str) -> tuple[ConsumerProtocolTopic, ...]:
    return tuple(ConsumerProtocolTopic(topic=name, partitions=each) for name, each in partitions_of(text).items())


def optional_list(text: str | None) -> tuple[str, ...] | None:
    """None where the option is missing; `topics=` is an empty list."""
    return None if text is None else tuple(each for each in text.split(",") if each)


class Play:
    """The verbs of these scripts. The first word is the client. The group is `g`, and topics go by their names."""

    def __init__(self) -> None:
        self.config: dict[str, int | str] = {}
        self.topics = Topics()
        self.said: set[bytes] = set()  # subscriptions and assignments that members handed in
        ids = count(1)
        self.stage = Stage(
            GroupShard,
            lambda now: GroupEnvironment(now, GroupConfig(**self.config), lambda: f"id{next(ids)}", self.topics),
            lambda shard: {group_id: str(group.state) for group_id, group in shard.groups.items()},
            records.decode,
        )
        self.stage.now = 1  # a target of time 0 is none

    def verbs(self) -> dict[str, Verb]:
        own = (
            self.set,
            self.topic,
            self.beat,
            self.join,
            self.sync,
            self.heartbeat,
            self.leave,
            self.commit,
            self.fetch,
            self.delete,
            self.owners,
            self.show,
            self.list,
        )
        verbs = self.stage.verbs() | {verb.__name__: verb for verb in own}
        return {name: self._readable(verb) for name, verb in verbs.items()}

    def _readable(self, verb: Verb) -> Verb:
        """Topics by name; subscriptions and assignments in a few letters, not as bytes."""

        def readable(command: Command) -> list[str]:
            lines = verb(command)
            names = {str(view.id): view.name for view in self.topics.by_name.values()}
            names |= {repr(data.decode("latin-1")): "…" for data in self.said}
            for long, short in names.items():
                lines = [line.replace(long, short) for line in lines]
            return [_with_assignment(line) for line in lines]

        return readable

    @property
    def machine(self) -> GroupShard:
        assert isinstance(self.stage.machine, GroupShard)
        return self.stage.machine

    def set(self, command: Command) -> list[str]:
        """`set consumer_max_size=2`: the broker's settings."""
        self.config |= {name: int(value) if value.isdigit() else value for name, value in command.options.items()}
        return []

    def topic(self, command: Command) -> list[str]:
        """`topic t=4 u=0`: t has four partitions from now on, and u is gone."""
        counts = {view.name: view.partitions for view in self.topics.by_name.values()}
        counts |= {name: int(value) for name, value in command.options.items()}
        views = [TopicView(topic_id(name), name, number) for name, number in counts.items() if number]
        version = self.topics.version + 1
        self.topics = Topics(version, {each.name: each for each in views}, {each.id: each for each in views})
        env = GroupEnvironment(self.stage.now, GroupConfig(**self.config), str, self.topics)
        return list(self.stage.execute(self.machine.topics_changed(env)))

    def beat(self, command: Command) -> list[str]:
        """`beat a epoch=3 owned=t:0+1`: ConsumerGroupHeartbeat. `beat a` joins; its member id is its name."""
        options = command.options
        epoch = int(options.get("epoch", 0))
        first = {"rebalance": "60000", "owned": "", "topics": None if "regex" in options else "t"} if epoch == 0 else {}
        said: Mapping[str, str | None] = {**first, **options}
        owned = said.get("owned")
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=options.get("member", command.words[0]),
            member_epoch=epoch,
            instance_id=options.get("instance"),
            rack_id=options.get("rack"),
            rebalance_timeout_ms=int(said.get("rebalance") or -1),
            subscribed_topic_names=optional_list(said.get("topics")),
            subscribed_topic_regex=options.get("regex"),
            server_assignor=options.get("assignor"),
            topic_partitions=None
            if owned is None
            else tuple(
                ConsumerGroupTopicPartitions(topic_id=topic_id(name), partitions=each)
                for name, each in partitions_of(owned).items()
            ),
        )
        return self.stage.ask(request, command.words[0], int(options.get("version", 1)))

    # -- the classic protocol

    def join(self, command: Command) -> list[str]:
        """`join a topics=t owned=t:0+1 instance=i protocols=range,sticky`: JoinGroup; `member=` asks for an id."""
        options = command.options
        subscription = ConsumerProtocolSubscription(
            topics=optional_list(options.get("topics", "t")) or (),
            owned_partitions=protocol_topics(options.get("owned", "")),
        )
        metadata = b"?" if "malformed" in command.words else write_subscription(subscription)
        names = options.get("protocols", "range").split(",")
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=int(options.get("session", 10_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            member_id=options.get("member", command.words[0]),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocols=tuple(JoinGroupProtocol(name=name, metadata=metadata) for name in names),
        )
        self.said.add(metadata)
        return self.stage.ask(request, command.words[0], int(options.get("version", 9)))

    def sync(self, command: Command) -> list[str]:
        """`sync a generation=2 assign=a:t:0+1;b:t:2`: SyncGroup; a classic group has a leader that assigns."""
        options = command.options
        pairs = [each.split(":", 1) for each in options.get("assign", "").split(";") if each]
        assignments = tuple(
            SyncGroupAssignment(
                member_id=member,
                assignment=write_assignment(
                    ConsumerProtocolAssignment(
                        assigned_partitions=protocol_topics(each), user_data=options.get("data", "").encode() or None
                    )
                ),
            )
            for member, each in pairs
        )
        request = SyncGroupRequest(
            group_id="g",
            generation_id=int(options["generation"]),
            member_id=options.get("member", command.words[0]),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocol_name=options.get("protocol", "range"),
            assignments=assignments,
        )
        self.said.update(each.assignment for each in assignments)
        return self.stage.ask(request, command.words[0], 5)

    def heartbeat(self, command: Command) -> list[str]:
        """`heartbeat a generation=2`."""
        request = HeartbeatRequest(
            group_id="g",
            generation_id=int(command.options["generation"]),
            member_id=command.options.get("member", command.words[0]),
            group_instance_id=command.options.get("instance"),
        )
        return self.stage.ask(request, command.words[0], 4)

    def leave(self, command: Command) -> list[str]:
        """`leave admin a /instance b/instance`: members by member id, by instance id, or by both."""
        who, *names = command.words
        parts = [name.partition("/") for name in names]
        members = tuple(LeaveGroupMember(member_id=member, group_instance_id=inst or None) for member, _, inst in parts)
        return self.stage.ask(LeaveGroupRequest(group_id="g", members=members), who, 5)

    # -- offsets and administrators

    def commit(self, command: Command) -> list[str]:
        """`commit a epoch=3 t:0`: OffsetCommit."""
        who, place = command.words
        name, numbers = next(iter(partitions_of(place).items()))
        partitions = tuple(OffsetCommitPartition(partition_index=each, committed_offset=7) for each in numbers)
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=int(command.options.get("epoch", -1)),
            member_id=command.options.get("member", who),
            topics=(OffsetCommitTopic(name=name, partitions=partitions),),
        )
        lines = self.stage.ask(request, who, int(command.options.get("version", 9)))
        return [line for line in lines if not line.startswith("writes")]

    def fetch(self, command: Command) -> list[str]:
        """`fetch a epoch=3`: OffsetFetch."""
        who = command.words[0]
        epoch = command.options.get("epoch")
        request = OffsetFetchGroup(
            group_id="g",
            member_id=None if epoch is None else who,
            member_epoch=int(epoch or -1),
            topics=(OffsetFetchTopic(name="t", partition_indexes=(0,)),),
        )
        return [show(self.machine.fetch_offsets(request, False, 9, self.topics))]

    def delete(self, command: Command) -> list[str]:
        return self.stage.ask(DeleteGroupsRequest(groups_names=("g",)), command.words[0], 2)

    def owners(self, command: Command) -> list[str]:
        """The epochs, states and partitions of the members."""
        group = self.machine.groups.get("g")
        if not isinstance(group, ConsumerGroup):
            return ["not a group of the consumer protocol"]
        epochs = f"epoch {group.epoch}, target of epoch {group.assignment_epoch}"
        return [
            epochs,
            *(f"{each.id}: epoch {each.epoch} {each.state.name} {_shown(each)}" for each in _sorted(group)),
        ]

    def show(self, command: Command) -> list[str]:
        """As ConsumerGroupDescribe and DescribeGroups have it."""
        described = self.machine.describe_consumer("g", self.topics, GroupConfig())
        return [show(described), show(self.machine.describe_classic("g"))]

    def list(self, command: Command) -> list[str]:
        states, types = (optional_list(command.options.get(of)) or () for of in ("states", "types"))
        return [show(group) for group in self.machine.list_groups(states, types)]


def _sorted(group: ConsumerGroup) -> list[Member]:
    return sorted(group.members.values(), key=lambda member: member.id)


def _shown(member: Member) -> str:
    held = " ".join(f"{name}:{'+'.join(map(str, sorted(each)))}" for name, each in member.assigned.items())
    revoking = " ".join(
        f"{name}:{'+'.join(map(str, sorted(each)))}" for name, each in member.pending_revocation.items()
    )
    return f"has {held or 'nothing'}" + (f", gives back {revoking}" if revoking else "")


def _with_assignment(line: str) -> str:
    """An assignment's bytes as its topics and partitions."""
    head, found, rest = line.partition("assignment='")
    if not found:
        return line
    text, _, tail = rest.partition("'")
    data = text.encode("latin-1").decode("unicode_escape").encode("latin-1")
    if not data:
        return line
    topics = read_assignment(data).assigned_partitions
    shown = " ".join(f"{each.topic}:{'+'.join(map(str, each.partitions))}" for each in topics)
    return f"{head}assignment=<{shown}>{_with_assignment(tail)}"


@pytest.mark.parametrize("path", scripts("consumer"), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    run_script(path, Play().verbs())
