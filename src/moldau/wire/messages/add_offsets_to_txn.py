"""AddOffsetsToTxn: add the offsets of a group to a transaction. Versions differ in encoding and errors only."""

from moldau.wire.declare import GROUP_ID, INT16, INT32, INT64, TRANSACTIONAL_ID, message, wire


@message(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest:
    transactional_id: str = wire(TRANSACTIONAL_ID)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(GROUP_ID)


@message(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
