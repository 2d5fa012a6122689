"""Names for the integers and pairs that many rooms share, and the values that stand for none.

The integers are aliases, not NewTypes: offsets are added and compared everywhere, and the sum of two NewTypes is an
int again. The names are for the reader of a signature.
"""

from typing import NamedTuple, NewType, TypeAlias

Offset: TypeAlias = int  # of a record in its partition
Position: TypeAlias = int  # of a byte in a file
Epoch: TypeAlias = int  # of a leader, a broker, a controller or a producer

Millis = NewType("Millis", int)  # since the Unix epoch

NO_TIMESTAMP = Millis(-1)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    topic_id: bytes  # the 16 bytes of its UUID, as requests carry it
    partition: int
