"""A group member on aiokafka: reads, commits what it read, tells both."""

import asyncio

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from told import Owned, consumer_settings, leaving, may_commit, settings, tell

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Member(ConsumerRebalanceListener):
    def __init__(self) -> None:
        given = settings()
        self.given = given
        self.owned = Owned()
        self.next: dict[TopicPartition, int] = {}
        self.consumer = AIOKafkaConsumer(**consumer_settings(given, ASSIGNORS))

    async def run(self) -> None:
        self.consumer.subscribe(self.given["topics"], listener=self)
        await self.consumer.start()
        while not leaving.is_set():
            try:
                found = await self.consumer.getmany(timeout_ms=100)
            except KafkaError as error:
                tell("fatal" if not error.retriable else "trouble", error=type(error).__name__)
                continue
            self.told(found)
            await self.commit()
        self.owned.become(())  # aiokafka does not call its listener when it leaves
        await self.consumer.stop()
        tell("left")

    def told(self, found: dict) -> None:
        for place, messages in found.items():
            tell("read", records=[(*place, message.offset, message.value.decode()) for message in messages])
            self.next[place] = messages[-1].offset + 1

    async def commit(self) -> None:
        if not self.next or not may_commit.is_set():
            return
        offsets, self.next = self.next, {}
        try:
            await self.consumer.commit(offsets)
        except KafkaError as refused:
            tell("refused", error=type(refused).__name__)
        else:
            tell("committed", offsets=[(*place, offset) for place, offset in offsets.items()])

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self.commit()
        self.owned.become(())

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.owned.become(tuple(each) for each in assigned)


async def main() -> None:
    await Member().run()


if __name__ == "__main__":
    asyncio.run(main())
