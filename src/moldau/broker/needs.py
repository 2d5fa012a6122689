"""The needs of the APIs, for the rows of the table.

They follow Kafka's table "Operations and Resources on Protocols", and Kafka's code where the two differ: Produce needs
no IdempotentWrite (KIP-679), ElectLeaders needs Alter, ConsumerGroupDescribe needs Describe.
"""

from typing import NamedTuple

from moldau.security.acls import Operation, ResourceType


class Need(NamedTuple):
    operation: Operation
    resource: ResourceType
    when: str = ""  # which requests need it, or what may stand in for it; "" for all

    def __str__(self) -> str:
        return f"{self.operation.title} on {self.resource.title}" + (f" ({self.when})" if self.when else "")


_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID

Needs = tuple[Need, ...]

NOTHING: Needs = ()

READ_TOPIC: Needs = (Need(Operation.READ, _TOPIC),)
WRITE_TOPIC: Needs = (Need(Operation.WRITE, _TOPIC),)
DELETE_TOPIC: Needs = (Need(Operation.DELETE, _TOPIC),)
ALTER_TOPIC: Needs = (Need(Operation.ALTER, _TOPIC),)
DESCRIBE_TOPIC: Needs = (Need(Operation.DESCRIBE, _TOPIC),)

READ_GROUP: Needs = (Need(Operation.READ, _GROUP),)
DELETE_GROUP: Needs = (Need(Operation.DELETE, _GROUP),)
DESCRIBE_GROUP: Needs = (Need(Operation.DESCRIBE, _GROUP),)

WRITE_TRANSACTIONAL_ID: Needs = (Need(Operation.WRITE, _TRANSACTIONAL_ID),)
DESCRIBE_TRANSACTIONAL_ID: Needs = (Need(Operation.DESCRIBE, _TRANSACTIONAL_ID),)

ALTER_CLUSTER: Needs = (Need(Operation.ALTER, _CLUSTER),)
DESCRIBE_CLUSTER: Needs = (Need(Operation.DESCRIBE, _CLUSTER),)
DESCRIBE_ORGANISATIONS: Needs = (
    Need(Operation.DESCRIBE, _CLUSTER, "or, for its own organisation, a member's role admin of all products"),
)
CREATE_TOKEN: Needs = (Need(Operation.CREATE_TOKENS, ResourceType.USER, "for another owner"),)
DESCRIBE_TOKEN: Needs = (
    Need(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "of others; or DescribeTokens on their owner"),
    Need(Operation.DESCRIBE_TOKENS, ResourceType.USER, "of others"),
)
CLUSTER_ACTION: Needs = (Need(Operation.CLUSTER_ACTION, _CLUSTER),)
ALTER_CLUSTER_CONFIGS: Needs = (Need(Operation.ALTER_CONFIGS, _CLUSTER),)
DESCRIBE_CLUSTER_CONFIGS: Needs = (Need(Operation.DESCRIBE_CONFIGS, _CLUSTER),)

PRODUCE: Needs = (*WRITE_TOPIC, Need(Operation.WRITE, _TRANSACTIONAL_ID, "in a transaction"))
FETCH: Needs = (
    Need(Operation.READ, _TOPIC, "consumers"),
    Need(Operation.CLUSTER_ACTION, _CLUSTER, "followers"),
)
LEADER_EPOCH: Needs = (
    Need(Operation.DESCRIBE, _TOPIC, "consumers"),
    Need(Operation.CLUSTER_ACTION, _CLUSTER, "followers"),
)
AUTO_CREATE: Needs = (
    Need(Operation.CREATE, _CLUSTER, "to create topics; or on each topic"),
    Need(Operation.CREATE, _TOPIC, "to create topics"),
)
CREATE_TOPICS: Needs = (
    Need(Operation.CREATE, _CLUSTER, "or on each topic"),
    Need(Operation.CREATE, _TOPIC),
    Need(Operation.DESCRIBE_CONFIGS, _TOPIC, "for the configs in the response"),
)
FIND_COORDINATOR: Needs = (
    Need(Operation.DESCRIBE, _GROUP, "of a group"),
    Need(Operation.DESCRIBE, _TRANSACTIONAL_ID, "of a transactional id"),
)
METADATA: Needs = (
    *DESCRIBE_TOPIC,
    *AUTO_CREATE,
    Need(Operation.DESCRIBE, _CLUSTER, "for the authorized operations on the cluster"),
)
DESCRIBE_TRANSACTIONS: Needs = (
    *DESCRIBE_TRANSACTIONAL_ID,
    Need(Operation.DESCRIBE, _TOPIC, "for each topic of the transaction"),
)
OPERATIONS_ON_CLUSTER: Needs = (Need(Operation.DESCRIBE, _CLUSTER, "for the authorized operations"),)
DELETE_TOPICS: Needs = (
    Need(Operation.DELETE, _CLUSTER, "or on each topic"),
    *DELETE_TOPIC,
    Need(Operation.DESCRIBE, _TOPIC, "to learn that a topic does not exist"),
)
LIST_GROUPS: Needs = (Need(Operation.DESCRIBE, _CLUSTER, "or on each group"), *DESCRIBE_GROUP)
INIT_PRODUCER_ID: Needs = (
    Need(Operation.WRITE, _TRANSACTIONAL_ID, "with a transactional id"),
    Need(Operation.IDEMPOTENT_WRITE, _CLUSTER, "without; or Write on any topic"),
)
ADD_PARTITIONS: Needs = (
    *WRITE_TRANSACTIONAL_ID,
    *WRITE_TOPIC,
    Need(Operation.CLUSTER_ACTION, _CLUSTER, "from version 4 on, instead"),
)
WRITE_MARKERS: Needs = (Need(Operation.CLUSTER_ACTION, _CLUSTER, "or Alter"), *ALTER_CLUSTER)


def configs(operation: Operation) -> Needs:
    return (
        Need(operation, _TOPIC, "of a topic"),
        Need(operation, _GROUP, "of a group"),
        Need(operation, _CLUSTER, "of a broker"),
    )


DESCRIBE_CONFIGS = configs(Operation.DESCRIBE_CONFIGS)
ALTER_CONFIGS = configs(Operation.ALTER_CONFIGS)
