"""Dead letter topics: `<topic>.dead` beside a topic, created with its first dead letter, as safe as the topic is."""

from collections.abc import Awaitable, Callable, Sequence

from moldau.base.errors import Refusal, WireError
from moldau.broker.own_records import OwnRecords
from moldau.broker.schemas.declared import DEAD
from moldau.log.settings import LogConfig
from moldau.metadata.image import ClusterImage
from moldau.metadata.topics import MAX_NAME_LENGTH, TopicSpec

PURPOSE = "dead-letters"


class DeadLetterTopics:
    def __init__(
        self,
        records: OwnRecords,
        image: Callable[[], ClusterImage],
        create: Callable[[Sequence[TopicSpec]], Awaitable[None]],
    ) -> None:
        self._records = records
        self._image = image
        self._create = create

    async def append(
        self, topic: str, index: int, batches: Sequence[bytes], config: LogConfig, largest: int
    ) -> Refusal | None:
        """Append the dead letters of a partition; None when all are committed, else why not."""
        name = topic + DEAD
        if len(name) > MAX_NAME_LENGTH:
            words = f"The record does not conform, and {name} is too long a name for a topic of dead letters."
            return Refusal(WireError.INVALID_RECORD, words)
        if name not in self._image().topics:
            await self._create([self._spec(topic, config, largest)])
        found = self._image().topics.get(name)
        if found is None:
            return Refusal(WireError.REQUEST_TIMED_OUT, f"The topic {name} for records to set aside cannot be created.")
        for batch in batches:
            refusal = await self._records.append(name, index % len(found.partitions), batch)
            if refusal is not None:
                words = f"Records cannot be set aside in {name}: {refusal.message}"
                return Refusal(WireError.REQUEST_TIMED_OUT, words)
        return None

    def _spec(self, topic: str, config: LogConfig, largest: int) -> TopicSpec:
        partitions = self._image().topics[topic].partitions
        return TopicSpec(
            topic + DEAD,
            len(partitions),
            len(partitions[0].replicas),
            config={"max.message.bytes": str(largest), "min.insync.replicas": str(config.min_insync_replicas)},
        )
