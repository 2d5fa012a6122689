"""Which errors clients may be told of in a fault: those after which it is enough to try again, or to go on.

All others are hard. What a client gets over without a word is not here: nobody is told of it.
"""

from confluent_kafka import KafkaError

from moldau.base.errors import WireError

RETRIABLE = {int(error) for error in WireError if error.retriable}
# A member was away for longer than its session, or somebody else came or went: it joins again by itself.
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
LOCAL = {  # of librdkafka: time was up, or a broker was not there
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._UNKNOWN_PARTITION,  # it has forgotten a topic for which nobody could answer
    KafkaError._DESTROY_BROKER,  # the connection that it meant to use is being replaced
    KafkaError._PURGE_QUEUE,  # of a transaction that is aborted
    KafkaError._PURGE_INFLIGHT,
}
# The transactional producer was replaced, or the coordinator aborted its transaction because time was up: by a clock
# that had jumped ahead, that is soon.
FENCED = {KafkaError._FENCED, int(WireError.INVALID_PRODUCER_EPOCH), int(WireError.PRODUCER_FENCED)}
JAVA = {  # the last part of the class's name
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
    """One of librdkafka's."""
    return error.fatal() or error.code() not in RETRIABLE | REJOINS | LOCAL


def is_hard_in_transaction(error: KafkaError) -> bool:
    """What is not fatal, one aborts for."""
    return error.fatal() and error.code() not in FENCED


def is_hard_in_python(failure: BaseException) -> bool:
    """One of aiokafka's or kafka-python's, which know it themselves; but aiokafka forgot its own time-out."""
    return not getattr(failure, "retriable", False) and type(failure).__name__ != "KafkaTimeoutError"


def is_hard_in_java(name: str) -> bool:
    """By the class of the exception."""
    return name.rpartition(".")[2] not in JAVA
