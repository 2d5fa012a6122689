"""InitProducerId: the id and epoch of an idempotent or transactional producer.

Version 3 lets a producer keep its id and bump its epoch (KIP-360); 4 and 5 only add errors. Version 6
(two-phase commit, KIP-939) is not stable in Kafka 4.3 and not declared.
"""

from moldau.wire.declare import INT16, INT32, INT64, TRANSACTIONAL_ID, message, wire


@message(key=22, versions=(0, 5), flexible=2)
class InitProducerIdRequest:
    transactional_id: str | None = wire(TRANSACTIONAL_ID, nullable=0)
    transaction_timeout_ms: int = wire(INT32)
    producer_id: int = wire(INT64, since=3, default=-1)
    producer_epoch: int = wire(INT16, since=3, default=-1)


@message(key=22, versions=(0, 5), flexible=2)
class InitProducerIdResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16)
