"""Table of guards, by API key. Produce and Fetch have none: their handlers check each topic as they come to it."""

from collections.abc import Mapping
from typing import Final

from moldau.broker.security.gate import Guard, by_handler, everyone
from moldau.broker.security.guards import cluster, groups, metadata, organisations, topics, transactions
from moldau.security.acls import Operation
from moldau.wire.messages.registry import BY_KEY

HOT: Final = (0, 1)


def _all(key: int, operation: Operation, **others: object) -> Guard:
    return cluster.needs(operation, cluster.saying(BY_KEY[key].response, **others))


GUARDS: Final[Mapping[int, Guard]] = {
    2: topics.list_offsets,
    3: metadata.metadata,
    8: groups.offset_commit,
    9: groups.offset_fetch,
    10: transactions.find_coordinator,
    11: groups.member(BY_KEY[11].response),
    12: groups.member(BY_KEY[12].response),
    13: groups.member(BY_KEY[13].response),
    14: groups.member(BY_KEY[14].response),
    15: groups.describe_groups,
    16: groups.list_groups,
    17: everyone,  # this and the next are sent before the login
    18: everyone,
    19: topics.create_topics,
    20: topics.delete_topics,
    21: topics.delete_records,
    22: transactions.init_producer_id,
    23: topics.offset_for_leader_epoch,
    24: transactions.add_partitions_to_txn,
    25: transactions.add_offsets_to_txn,
    26: transactions.end_txn,
    27: cluster.write_txn_markers,
    28: transactions.txn_offset_commit,
    29: _all(29, Operation.DESCRIBE),
    30: cluster.needs(Operation.ALTER, cluster.no_creation),
    31: cluster.needs(Operation.ALTER, cluster.no_deletion),
    32: cluster.describe_configs,
    33: cluster.alter_configs,
    34: cluster.needs(Operation.ALTER, cluster.no_log_dirs),
    35: _all(35, Operation.DESCRIBE, results=()),
    36: everyone,
    37: topics.create_partitions,
    38: by_handler,
    39: everyone,  # the token itself names those that may renew and expire it
    40: everyone,
    41: by_handler,
    42: groups.delete_groups,
    43: cluster.needs(Operation.ALTER, cluster.no_election),
    44: cluster.incremental_alter_configs,
    45: cluster.needs(Operation.ALTER, cluster.no_reassignment),
    46: _all(46, Operation.DESCRIBE, topics=()),
    47: groups.offset_delete,
    48: _all(48, Operation.DESCRIBE_CONFIGS, error_message=cluster.FAILED.doc, entries=None),
    49: cluster.needs(Operation.ALTER_CONFIGS, cluster.no_quotas),
    50: cluster.needs(Operation.DESCRIBE, cluster.no_description),
    51: cluster.needs(Operation.ALTER, cluster.no_credentials),
    56: _all(56, Operation.CLUSTER_ACTION),
    57: _all(57, Operation.ALTER),
    58: _all(58, Operation.CLUSTER_ACTION),
    60: metadata.describe_cluster,
    61: topics.describe_producers,
    63: _all(63, Operation.CLUSTER_ACTION),
    65: transactions.describe_transactions,
    66: transactions.list_transactions,
    67: _all(67, Operation.CLUSTER_ACTION),
    68: groups.consumer_group_heartbeat,
    69: groups.consumer_group_describe,
    74: _all(74, Operation.DESCRIBE_CONFIGS),
    75: metadata.describe_topic_partitions,
    20_000: organisations.describe_organisations,
    20_001: cluster.needs(Operation.ALTER, organisations.no_organisations),
}
