"""Table of the APIs that this broker serves: handler, needs and audit of each. ApiVersions is derived from it."""

from moldau.broker import needs
from moldau.broker.apis.add_offsets_to_txn import add_offsets_to_txn
from moldau.broker.apis.add_partitions_to_txn import add_partitions_to_txn
from moldau.broker.apis.allocate_producer_ids import allocate_producer_ids
from moldau.broker.apis.alter_client_quotas import alter_client_quotas
from moldau.broker.apis.alter_configs import alter_configs, incremental_alter_configs, refuse_all, refuse_some
from moldau.broker.apis.alter_organisations import alter_organisations
from moldau.broker.apis.alter_partition import alter_partitions
from moldau.broker.apis.alter_partition_reassignments import alter_partition_reassignments
from moldau.broker.apis.alter_replica_log_dirs import alter_replica_log_dirs
from moldau.broker.apis.alter_user_scram_credentials import alter_user_scram_credentials
from moldau.broker.apis.api_versions import api_versions
from moldau.broker.apis.broker_heartbeat import broker_heartbeat
from moldau.broker.apis.change_delegation_token import expire_delegation_token, renew_delegation_token
from moldau.broker.apis.consumer_group_describe import consumer_group_describe
from moldau.broker.apis.consumer_group_heartbeat import consumer_group_heartbeat
from moldau.broker.apis.create_acls import create_acls
from moldau.broker.apis.create_delegation_token import create_delegation_token
from moldau.broker.apis.create_partitions import create_partitions
from moldau.broker.apis.create_topics import create_topics
from moldau.broker.apis.delete_acls import delete_acls
from moldau.broker.apis.delete_groups import delete_groups
from moldau.broker.apis.delete_records import delete_records
from moldau.broker.apis.delete_topics import delete_topics
from moldau.broker.apis.describe_acls import describe_acls
from moldau.broker.apis.describe_client_quotas import describe_client_quotas
from moldau.broker.apis.describe_cluster import describe_cluster
from moldau.broker.apis.describe_configs import describe_configs
from moldau.broker.apis.describe_delegation_token import describe_delegation_token
from moldau.broker.apis.describe_groups import describe_groups
from moldau.broker.apis.describe_log_dirs import describe_log_dirs
from moldau.broker.apis.describe_organisations import describe_organisations
from moldau.broker.apis.describe_producers import describe_producers
from moldau.broker.apis.describe_topic_partitions import describe_topic_partitions
from moldau.broker.apis.describe_transactions import describe_transactions
from moldau.broker.apis.describe_user_scram_credentials import describe_user_scram_credentials
from moldau.broker.apis.elect_leaders import elect_leaders
from moldau.broker.apis.end_txn import end_txn
from moldau.broker.apis.envelope import envelope
from moldau.broker.apis.fetch import fetch
from moldau.broker.apis.find_coordinator import find_coordinator
from moldau.broker.apis.heartbeat import heartbeat
from moldau.broker.apis.init_producer_id import init_producer_id
from moldau.broker.apis.join_group import join_group
from moldau.broker.apis.leave_group import leave_group
from moldau.broker.apis.list_config_resources import list_config_resources
from moldau.broker.apis.list_groups import list_groups
from moldau.broker.apis.list_offsets import list_offsets
from moldau.broker.apis.list_partition_reassignments import list_partition_reassignments
from moldau.broker.apis.list_transactions import list_transactions
from moldau.broker.apis.metadata import metadata
from moldau.broker.apis.offset_commit import offset_commit
from moldau.broker.apis.offset_delete import offset_delete
from moldau.broker.apis.offset_fetch import offset_fetch
from moldau.broker.apis.offset_for_leader_epoch import offset_for_leader_epoch
from moldau.broker.apis.produce import produce
from moldau.broker.apis.sasl_authenticate import sasl_authenticate
from moldau.broker.apis.sasl_handshake import sasl_handshake
from moldau.broker.apis.sync_group import sync_group
from moldau.broker.apis.txn_offset_commit import txn_offset_commit
from moldau.broker.apis.update_features import update_features
from moldau.broker.apis.write_txn_markers import write_txn_markers
from moldau.broker.dispatch import control, coordinator, data, hot
from moldau.broker.security.delegation_tokens import refused_requester
from moldau.security import audit_actions as audit
from moldau.wire.messages.registry import BY_KEY

APIS = (
    hot(BY_KEY[0], produce, needs.PRODUCE),
    hot(BY_KEY[1], fetch, needs.FETCH),
    data(BY_KEY[2], list_offsets, needs.DESCRIBE_TOPIC),
    control(BY_KEY[3], metadata, needs.METADATA),
    coordinator(BY_KEY[8], offset_commit, needs.READ_GROUP + needs.READ_TOPIC),
    coordinator(BY_KEY[9], offset_fetch, needs.DESCRIBE_GROUP + needs.DESCRIBE_TOPIC),
    coordinator(BY_KEY[10], find_coordinator, needs.FIND_COORDINATOR),
    coordinator(BY_KEY[11], join_group, needs.READ_GROUP),
    coordinator(BY_KEY[12], heartbeat, needs.READ_GROUP),
    coordinator(BY_KEY[13], leave_group, needs.READ_GROUP),
    coordinator(BY_KEY[14], sync_group, needs.READ_GROUP),
    coordinator(BY_KEY[15], describe_groups, needs.DESCRIBE_GROUP),
    coordinator(BY_KEY[16], list_groups, needs.LIST_GROUPS),
    control(BY_KEY[17], sasl_handshake, needs.NOTHING),
    control(BY_KEY[18], api_versions, needs.NOTHING),
    control(BY_KEY[19], create_topics, needs.CREATE_TOPICS, forwarded=True, audited=audit.topics_created),
    control(BY_KEY[20], delete_topics, needs.DELETE_TOPICS, forwarded=True, audited=audit.topics_deleted),
    data(BY_KEY[21], delete_records, needs.DELETE_TOPIC, audited=audit.records_deleted),
    coordinator(BY_KEY[22], init_producer_id, needs.INIT_PRODUCER_ID),
    data(BY_KEY[23], offset_for_leader_epoch, needs.LEADER_EPOCH),
    coordinator(BY_KEY[24], add_partitions_to_txn, needs.ADD_PARTITIONS),
    coordinator(BY_KEY[25], add_offsets_to_txn, needs.WRITE_TRANSACTIONAL_ID + needs.READ_GROUP),
    coordinator(BY_KEY[26], end_txn, needs.WRITE_TRANSACTIONAL_ID),
    coordinator(BY_KEY[27], write_txn_markers, needs.WRITE_MARKERS),
    coordinator(BY_KEY[28], txn_offset_commit, needs.WRITE_TRANSACTIONAL_ID + needs.READ_GROUP + needs.READ_TOPIC),
    control(BY_KEY[29], describe_acls, needs.DESCRIBE_CLUSTER),
    control(BY_KEY[30], create_acls, needs.ALTER_CLUSTER, forwarded=True, audited=audit.acls_created),
    control(BY_KEY[31], delete_acls, needs.ALTER_CLUSTER, forwarded=True, audited=audit.acls_deleted),
    control(BY_KEY[32], describe_configs, needs.DESCRIBE_CONFIGS),
    control(
        BY_KEY[33],
        alter_configs,
        needs.ALTER_CONFIGS,
        forwarded=True,
        audited=audit.configs_altered,
        refuses=refuse_all,
    ),
    data(BY_KEY[34], alter_replica_log_dirs, needs.ALTER_CLUSTER, audited=audit.directories_altered),
    data(BY_KEY[35], describe_log_dirs, needs.DESCRIBE_CLUSTER),
    control(BY_KEY[36], sasl_authenticate, needs.NOTHING),
    control(BY_KEY[37], create_partitions, needs.ALTER_TOPIC, forwarded=True, audited=audit.partitions_created),
    control(
        BY_KEY[38],
        create_delegation_token,
        needs.CREATE_TOKEN,
        forwarded=True,
        only_for=refused_requester,
        audited=audit.token_created,
    ),
    control(
        BY_KEY[39],
        renew_delegation_token,
        needs.NOTHING,
        forwarded=True,
        only_for=refused_requester,
        audited=audit.token_changed,
    ),
    control(
        BY_KEY[40],
        expire_delegation_token,
        needs.NOTHING,
        forwarded=True,
        only_for=refused_requester,
        audited=audit.token_changed,
    ),
    control(BY_KEY[41], describe_delegation_token, needs.DESCRIBE_TOKEN, only_for=refused_requester),
    coordinator(BY_KEY[42], delete_groups, needs.DELETE_GROUP, audited=audit.groups_deleted),
    control(BY_KEY[43], elect_leaders, needs.ALTER_CLUSTER, forwarded=True, audited=audit.leaders_elected),
    control(
        BY_KEY[44],
        incremental_alter_configs,
        needs.ALTER_CONFIGS,
        forwarded=True,
        audited=audit.configs_altered,
        refuses=refuse_some,
    ),
    control(BY_KEY[45], alter_partition_reassignments, needs.ALTER_CLUSTER, forwarded=True, audited=audit.reassigned),
    control(BY_KEY[46], list_partition_reassignments, needs.DESCRIBE_CLUSTER),
    coordinator(BY_KEY[47], offset_delete, needs.DELETE_GROUP + needs.READ_TOPIC, audited=audit.offsets_deleted),
    control(BY_KEY[48], describe_client_quotas, needs.DESCRIBE_CLUSTER_CONFIGS),
    control(BY_KEY[49], alter_client_quotas, needs.ALTER_CLUSTER_CONFIGS, forwarded=True, audited=audit.quotas_altered),
    control(BY_KEY[50], describe_user_scram_credentials, needs.DESCRIBE_CLUSTER),
    control(
        BY_KEY[51], alter_user_scram_credentials, needs.ALTER_CLUSTER, forwarded=True, audited=audit.credentials_altered
    ),
    control(BY_KEY[56], alter_partitions, needs.CLUSTER_ACTION),
    control(BY_KEY[57], update_features, needs.ALTER_CLUSTER, forwarded=True, audited=audit.features_updated),
    control(BY_KEY[58], envelope, needs.CLUSTER_ACTION),
    control(BY_KEY[60], describe_cluster, needs.OPERATIONS_ON_CLUSTER),
    data(BY_KEY[61], describe_producers, needs.READ_TOPIC),
    control(BY_KEY[63], broker_heartbeat, needs.CLUSTER_ACTION),
    coordinator(BY_KEY[65], describe_transactions, needs.DESCRIBE_TRANSACTIONS),
    coordinator(BY_KEY[66], list_transactions, needs.DESCRIBE_TRANSACTIONAL_ID),
    control(BY_KEY[67], allocate_producer_ids, needs.CLUSTER_ACTION),
    coordinator(BY_KEY[68], consumer_group_heartbeat, needs.READ_GROUP + needs.DESCRIBE_TOPIC),
    coordinator(BY_KEY[69], consumer_group_describe, needs.DESCRIBE_GROUP + needs.DESCRIBE_TOPIC),
    control(BY_KEY[74], list_config_resources, needs.DESCRIBE_CLUSTER_CONFIGS),
    control(BY_KEY[75], describe_topic_partitions, needs.DESCRIBE_TOPIC),
    control(BY_KEY[20_000], describe_organisations, needs.DESCRIBE_ORGANISATIONS),
    control(
        BY_KEY[20_001],
        alter_organisations,
        needs.ALTER_CLUSTER,
        forwarded=True,
        audited=audit.organisations_altered,
    ),
)
