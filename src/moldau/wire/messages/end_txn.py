"""EndTxn: commit or abort a transaction.

From version 5 on, which is transaction version 2, the response has the producer id and epoch of the next transaction
(KIP-890).
"""

from moldau.wire.declare import BOOL, INT16, INT32, INT64, TRANSACTIONAL_ID, message, wire


@message(key=26, versions=(0, 5), flexible=3)
class EndTxnRequest:
    transactional_id: str = wire(TRANSACTIONAL_ID)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)


@message(key=26, versions=(0, 5), flexible=3)
class EndTxnResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    producer_id: int = wire(INT64, since=5, default=-1, ignorable=True)
    producer_epoch: int = wire(INT16, since=5, default=-1, ignorable=True)
