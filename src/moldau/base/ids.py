"""Kinds of integers and names: an offset is not a position, an epoch is not a broker id."""

from typing import NewType

Offset = NewType("Offset", int)  # of a record within its partition
Position = NewType("Position", int)  # of a byte within a file
Epoch = NewType("Epoch", int)  # of a partition's leadership
BrokerId = NewType("BrokerId", int)
Millis = NewType("Millis", int)  # since the Unix epoch
ProducerId = NewType("ProducerId", int)

NO_OFFSET = Offset(-1)
NO_EPOCH = Epoch(-1)
NO_TIMESTAMP = Millis(-1)
NO_PRODUCER = ProducerId(-1)
