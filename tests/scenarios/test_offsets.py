"""Scripts of committed offsets: validation, pending offsets of transactions, deletion and expiration."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest

from moldau.groups import records
from moldau.groups.environment import GroupConfig, GroupEnvironment, Topics, TopicView
from moldau.groups.shard import GroupShard
from moldau.wire.messages.consumer_protocol import ConsumerProtocolSubscription, write_subscription
from moldau.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from moldau.wire.messages.offset_delete import OffsetDeletePartition, OffsetDeleteRequest, OffsetDeleteTopic
from moldau.wire.messages.offset_fetch import OffsetFetchGroup, OffsetFetchTopic
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from moldau.wire.primitives import ZERO_UUID
from scenarios.script import Command, Verb, run_script, scripts
from scenarios.stage import Stage, show
from scenarios.test_classic import Play as ClassicPlay

NO_SUCH_TOPIC = UUID(int=404)
BY_TOPIC_ID = 10  # OffsetCommit and OffsetFetch


class Play(ClassicPlay):
    """The verbs of classic groups, and these. The words after the client are `topic-partition`, with `:offset:note`."""

    def __init__(self) -> None:
        super().__init__()
        self.topics: dict[str, TopicView] = {}
        self.ids: Iterator[int] = count(1)
        self.stage = Stage(
            GroupShard,
            lambda now: GroupEnvironment(now, GroupConfig(**self.config), lambda: "1", self._topics()),
            lambda shard: {group_id: group.state for group_id, group in shard.groups.items()},
            records.decode,
        )

    def verbs(self) -> dict[str, Verb]:
        own = (self.commit, self.txn, self.end, self.fetch, self.forget, self.topic, self.expire)
        return super().verbs() | {verb.__name__: verb for verb in own}

    def _topics(self) -> Topics:
        views = self.topics.values()
        return Topics(len(views), {view.name: view for view in views}, {view.id: view for view in views})

    def _id(self, name: str) -> UUID:
        return self.topics[name].id if name in self.topics else NO_SUCH_TOPIC

    def topic(self, command: Command) -> list[str]:
        """`topic t 2` creates one with two partitions, `topic t gone` deletes it."""
        name, what = command.words
        if what == "gone":
            del self.topics[name]
        else:
            self.topics[name] = TopicView(UUID(int=next(self.ids)), name, int(what))
        assert isinstance(self.stage.machine, GroupShard)
        return list(self.stage.execute(self.stage.machine.topics_changed(self._env())))

    def _env(self) -> GroupEnvironment:
        return GroupEnvironment(self.stage.now, GroupConfig(**self.config), lambda: "1", self._topics())

    def expire(self, command: Command) -> list[str]:
        """`expire`: the periodic expiration of offsets and groups."""
        assert isinstance(self.stage.machine, GroupShard)
        return list(self.stage.execute(self.stage.machine.expire(self._env())))

    def join(self, command: Command) -> list[str]:
        """`join a member=… topics=t,u`: a consumer that reads these."""
        topics = tuple(filter(None, command.options.get("topics", "").split(",")))
        subscription = write_subscription(ConsumerProtocolSubscription(topics=topics, user_data=b""), 0)
        options = {"metadata": subscription.decode("ascii")} | command.options
        return super().join(Command(command.verb, command.words, options))

    def commit(self, command: Command) -> list[str]:
        """`commit a t-0:42 t-1:43:note member=a-1 generation=1 version=9 retention=1000 epoch=3`."""
        options, version = command.options, int(command.options.get("version", 9))
        topics = tuple(
            OffsetCommitTopic(
                name="" if version >= BY_TOPIC_ID else name,
                topic_id=self._id(name) if version >= BY_TOPIC_ID else ZERO_UUID,
                partitions=tuple(
                    OffsetCommitPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=int(options.get("epoch", -1)),
                        committed_metadata=note,
                    )
                    for partition, offset, note in partitions
                ),
            )
            for name, partitions in _offsets(command).items()
        )
        request = OffsetCommitRequest(
            group_id=options.get("group", "g"),
            generation_id_or_member_epoch=int(options.get("generation", -1)),
            member_id=options.get("member", ""),
            group_instance_id=options.get("instance"),
            retention_time_ms=int(options.get("retention", -1)),
            topics=topics,
        )
        return self.stage.ask(request, command.words[0], version)

    def txn(self, command: Command) -> list[str]:
        """`txn a t-0:42 producer=7 member=a-1 generation=1`."""
        options = command.options
        topics = tuple(
            TxnOffsetCommitTopic(
                name=name,
                partitions=tuple(
                    TxnOffsetCommitPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=note
                    )
                    for partition, offset, note in partitions
                ),
            )
            for name, partitions in _offsets(command).items()
        )
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=options.get("group", "g"),
            producer_id=int(options["producer"]),
            producer_epoch=0,
            generation_id=int(options.get("generation", -1)),
            member_id=options.get("member", ""),
            group_instance_id=options.get("instance"),
            topics=topics,
        )
        return self.stage.ask(request, command.words[0], int(options.get("version", 5)))

    def end(self, command: Command) -> list[str]:
        """`end 7 commit` or `end 7 abort`: the marker of a producer's transaction is written."""
        producer, how = command.words
        self.stage.end_transaction(int(producer), how == "commit")
        return []

    def fetch(self, command: Command) -> list[str]:
        """`fetch t-0 t-1 stable=yes`, or `fetch` for everything."""
        options, version = command.options, int(command.options.get("version", 9))
        asked = tuple(
            OffsetFetchTopic(
                name="" if version >= BY_TOPIC_ID else name,
                topic_id=self._id(name) if version >= BY_TOPIC_ID else ZERO_UUID,
                partition_indexes=tuple(partition for partition, _, _ in partitions),
            )
            for name, partitions in _offsets(command, skip=0).items()
        )
        request = OffsetFetchGroup(
            group_id=options.get("group", "g"),
            member_id=options.get("member"),
            member_epoch=int(options.get("epoch", -1)),
            topics=asked or None,
        )
        assert isinstance(self.stage.machine, GroupShard)
        stable = options.get("stable") == "yes"
        return [show(self.stage.machine.fetch_offsets(request, stable, version, self._topics()))]

    def forget(self, command: Command) -> list[str]:
        """`forget a t-0 t-1`: an administrator deletes offsets."""
        topics = tuple(
            OffsetDeleteTopic(
                name=name,
                partitions=tuple(OffsetDeletePartition(partition_index=partition) for partition, _, _ in partitions),
            )
            for name, partitions in _offsets(command).items()
        )
        request = OffsetDeleteRequest(group_id=command.options.get("group", "g"), topics=topics)
        return self.stage.ask(request, command.words[0], 0)


def _offsets(command: Command, skip: int = 1) -> dict[str, list[tuple[int, int, str | None]]]:
    """`t-0:42:note` by topic: partition, offset and note. A note `null` is none."""
    found: dict[str, list[tuple[int, int, str | None]]] = {}
    for word in command.words[skip:]:
        place, *rest = word.split(":")
        topic, _, partition = place.rpartition("-")
        offset = int(rest[0]) if rest else 0
        note = rest[1] if len(rest) > 1 else ""
        found.setdefault(topic, []).append((int(partition), offset, None if note == "null" else note))
    return found


@pytest.mark.parametrize("path", scripts("offsets"), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    run_script(path, Play().verbs())
