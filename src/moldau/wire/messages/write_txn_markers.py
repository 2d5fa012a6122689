"""WriteTxnMarkers: a transaction coordinator writes the end of transactions to their partitions.

Version 2 adds the transaction version, which decides whether a marker needs a new epoch (KIP-1228).
"""

from moldau.wire.declare import BOOL, INT8, INT16, INT32, INT64, TOPIC_NAME, Array, message, struct, wire


@struct
class WritableTxnMarkerTopic:
    name: str = wire(TOPIC_NAME)
    partition_indexes: tuple[int, ...] = wire(Array(INT32))


@struct
class WritableTxnMarker:
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    transaction_result: bool = wire(BOOL)  # True: committed
    topics: tuple[WritableTxnMarkerTopic, ...] = wire(Array(WritableTxnMarkerTopic))
    coordinator_epoch: int = wire(INT32)
    transaction_version: int = wire(INT8, since=2, default=0, ignorable=True)


@message(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersRequest:
    markers: tuple[WritableTxnMarker, ...] = wire(Array(WritableTxnMarker))


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16, default=0)


@struct
class WritableTxnMarkerTopicResult:
    name: str = wire(TOPIC_NAME)
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = wire(Array(WritableTxnMarkerPartitionResult))


@struct
class WritableTxnMarkerResult:
    producer_id: int = wire(INT64)
    topics: tuple[WritableTxnMarkerTopicResult, ...] = wire(Array(WritableTxnMarkerTopicResult))


@message(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse:
    markers: tuple[WritableTxnMarkerResult, ...] = wire(Array(WritableTxnMarkerResult))
