"""Errors that clients may report during a fault: those that a retry solves, or after which they can go on.

All others are hard. Errors that a client handles silently are not listed.
"""

from confluent_kafka import KafkaError

from moldau.base.errors import WireError

RETRIABLE = {int(error) for error in WireError if error.retriable}
# A member's session expired, or another member joined or left: it rejoins by itself.
REJOINS = {
    int(error)
    for error in (
        WireError.ILLEGAL_GENERATION,
        WireError.UNKNOWN_MEMBER_ID,
        WireError.REBALANCE_IN_PROGRESS,
        WireError.FENCED_MEMBER_EPOCH,
        WireError.STALE_MEMBER_EPOCH,
    )
}
LOCAL = {  # of librdkafka: a timeout, or a broker that is unavailable
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._UNKNOWN_PARTITION,  # it dropped a topic because no broker answered for it
    KafkaError._DESTROY_BROKER,  # the connection is being replaced
    KafkaError._PURGE_QUEUE,  # the transaction is aborted
    KafkaError._PURGE_INFLIGHT,
}
# The transactional producer was fenced, or the coordinator aborted its transaction after the timeout, which comes early
# if the clock jumps ahead.
FENCED = {KafkaError._FENCED, int(WireError.INVALID_PRODUCER_EPOCH), int(WireError.PRODUCER_FENCED)}
JAVA = {  # the last part of the class name
    "TimeoutException",
    "NetworkException",
    "DisconnectException",
    "NotLeaderOrFollowerException",
    "LeaderNotAvailableException",
    "UnknownTopicOrPartitionException",
    "UnknownTopicIdException",
    "FencedLeaderEpochException",
    "UnknownLeaderEpochException",
    "NotEnoughReplicasException",
    "NotEnoughReplicasAfterAppendException",
    "KafkaStorageException",
}


def is_hard(error: KafkaError) -> bool:
    """Whether an error of librdkafka is hard."""
    return error.fatal() or error.code() not in RETRIABLE | REJOINS | LOCAL


def is_hard_in_transaction(error: KafkaError) -> bool:
    """Whether an error in a transaction is hard: an abort solves all but fatal ones."""
    return error.fatal() and error.code() not in FENCED


def is_hard_in_python(failure: BaseException) -> bool:
    """Whether an error of aiokafka or kafka-python is hard: both mark retriable ones, except aiokafka's timeout."""
    return not getattr(failure, "retriable", False) and type(failure).__name__ != "KafkaTimeoutError"


def is_hard_in_java(name: str) -> bool:
    """Whether an exception of the Java client is hard, by its class."""
    return name.rpartition(".")[2] not in JAVA
