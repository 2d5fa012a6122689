"""AllocateProducerIds: a broker requests a block of producer ids from the controller. Between brokers only."""

from moldau.wire.declare import INT16, INT32, INT64, message, wire


@message(key=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsRequest:
    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, default=-1)


@message(key=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16)
    producer_id_start: int = wire(INT64, default=-1)
    producer_id_len: int = wire(INT32, default=0)
