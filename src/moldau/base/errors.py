"""Table of the protocol errors that Moldau returns: code, whether a client may retry, and the meaning.

A member is its code, so it packs like an int. Errors of Kafka's protocol that no API returns yet are not listed.
"""

from dataclasses import dataclass
from enum import IntEnum

MAKE_ROOM = "Delete topics or lower retention.bytes; space is freed after file.delete.delay.ms."  # on a full disk


class WireError(IntEnum):
    """`WireError.NAME` is the code; `.retriable` and `.doc` come from the table."""

    retriable: bool
    doc: str

    def __new__(cls, code: int, retriable: bool = False, doc: str = "") -> "WireError":
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.doc = doc
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "An unexpected error of the broker; its log has the details."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset is outside of the partition's log."
    CORRUPT_MESSAGE = 2, True, "The batch's checksum or layout is wrong."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This broker has no such topic or partition."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader now."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker does not lead the partition."
    REQUEST_TIMED_OUT = 7, True, "The request was not completed within its timeout."
    MESSAGE_TOO_LARGE = 10, False, "The batch is larger than max.message.bytes."
    OFFSET_METADATA_TOO_LARGE = (
        12,
        False,
        "The metadata of a committed offset is longer than offset.metadata.max.bytes.",
    )
    NETWORK_EXCEPTION = 13, True, "The connection was closed before the response came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "No coordinator is available."
    NOT_COORDINATOR = 16, True, "This broker does not coordinate that group or transactional id."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic's name is not allowed, or the topic may not be used that way."
    RECORD_LIST_TOO_LARGE = 18, False, "The batch is larger than a segment can be."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than min.insync.replicas; retry."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The batch is in the log, but the ISR has shrunk below min.insync.replicas.",
    )
    INVALID_REQUIRED_ACKS = 21, False, "acks must be -1 (all), 0 or 1."
    ILLEGAL_GENERATION = 22, False, "The group has another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member has no protocol in common with the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The group has no such member."
    INVALID_SESSION_TIMEOUT = (
        26,
        False,
        "The session timeout is outside of group.min.session.timeout.ms and group.max.session.timeout.ms.",
    )
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing: join again."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "The client is not authorized for this operation on the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "The client is not authorized for this operation on the group."
    CLUSTER_AUTHORIZATION_FAILED = (
        31,
        False,
        "The client is not authorized for this operation on the cluster, or this is not the inter-broker listener.",
    )
    INVALID_TIMESTAMP = 32, False, "A record's timestamp is further from the broker's clock than the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The SASL mechanism is not enabled, or not known."
    ILLEGAL_SASL_STATE = 34, False, "The request does not belong to this state of the connection's authentication."
    UNSUPPORTED_VERSION = 35, False, "This version of the request is not supported."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of that name exists."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "A setting's name or value is not valid."
    NOT_CONTROLLER = 41, True, "This broker is not the controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or the protocol."
    POLICY_VIOLATION = 44, False, "The request breaks a rule of this cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence number does not follow its last one."
    INVALID_PRODUCER_EPOCH = 47, False, "A newer epoch of this producer has written to the partition."
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is longer than transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, True, "The transactional id's last transaction is still being ended."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "A newer coordinator has taken over the transaction."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "The client is not authorized for this transactional id."
    SECURITY_DISABLED = 54, False, "ACLs need authorizer.class.name in the settings of the brokers."
    OPERATION_NOT_ATTEMPTED = 55, False, "Not attempted, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The disk failed, or is full: then delete topics or lower retention.bytes."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "The credentials are wrong."
    DELEGATION_TOKEN_AUTH_DISABLED = (
        61,
        False,
        "Delegation tokens are off: delegation.token.secret.key is not set.",
    )
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The user is neither owner nor renewer of the delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Delegation tokens are for authenticated users that did not log in with a delegation token themselves.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "The user may not create delegation tokens for this owner."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "A principal is of a type other than User."
    NON_EMPTY_GROUP = 68, False, "The group has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The fetch session has expired or was evicted."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session's epoch does not follow the last one."
    TOPIC_DELETION_DISABLED = 73, False, "delete.topic.enable is false."
    FENCED_LEADER_EPOCH = 74, True, "The client's leader epoch is older than the partition's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The client's leader epoch is newer than the partition's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "This request version does not allow the batch's compression."
    OFFSET_NOT_AVAILABLE = (
        78,
        True,
        "The offset is not known to be committed yet: the leader is new, or the follower is behind.",
    )
    STALE_BROKER_EPOCH = 77, False, "The broker has registered again since."
    MEMBER_ID_REQUIRED = 79, False, "The member has to rejoin with the member id in the response."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred replica cannot lead the partition now."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has the maximum number of members."
    FENCED_INSTANCE_ID = 82, False, "Another member has taken over the instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica can lead the partition now."
    ELECTION_NOT_NEEDED = 84, True, "The partition has the requested leader already."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic."
    INVALID_RECORD = 87, False, "A record breaks a rule of its topic or of the format."
    UNSTABLE_OFFSET_COMMIT = 88, True, "The offset is part of a transaction that has not ended."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota of controller mutations is exhausted; retry later."
    PRODUCER_FENCED = 90, False, "A newer producer has taken over the transactional id."
    RESOURCE_NOT_FOUND = 91, False, "There is no such thing: a user, or a credential."
    DUPLICATE_RESOURCE = 92, False, "The request names something twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "A credential has no user name, or too few or too many iterations."
    INVALID_UPDATE_VERSION = 95, False, "The feature cannot be set to this level, or the partition has changed since."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The principal of a forwarded request cannot be read."
    UNKNOWN_TOPIC_ID = 100, True, "No topic has this id."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "The transactional id is not known."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, False, "A broker cannot be in sync: it is gone, leaving, or has restarted."
    FENCED_MEMBER_EPOCH = 110, False, "The member's epoch is not the group's: the member has to rejoin."
    UNRELEASED_INSTANCE_ID = 111, False, "Another member still has the instance id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The broker has no such assignor."
    STALE_MEMBER_EPOCH = (
        113,
        False,
        "The member's epoch is older than the group's: the member has to send a heartbeat first.",
    )
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request is for another type of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "The request is for an unknown type of endpoint."
    TRANSACTION_ABORTABLE = 120, False, "The transaction cannot continue; abort it."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."


@dataclass(frozen=True, slots=True)
class Refusal:
    """An expected failure, as a value: the protocol error and a message for the user."""

    error: WireError
    message: str
    records: tuple[tuple[int, str], ...] = ()  # the invalid records of the batch, and why

    @classmethod
    def of(cls, error: WireError) -> "Refusal":
        return cls(error, error.doc)
