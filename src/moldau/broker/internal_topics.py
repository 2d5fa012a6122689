"""Internal topics: the state of coordinators, and the audit. Created when first needed, with settings of their own."""

from moldau.broker.settings import BrokerConfig
from moldau.metadata.image import ClusterImage
from moldau.metadata.topics import TopicSpec

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
AUDIT = "__audit"

AUDIT_BATCH_BYTES = 1024 * 1024  # more than a batch of audit records has, whatever message.max.bytes is


def internal_spec(name: str, config: BrokerConfig, image: ClusterImage) -> TopicSpec | None:
    """The specification of an internal topic; None for any other topic.

    The default replication factor is 3. With fewer brokers there are as many replicas as brokers.
    """
    cordoned = image.cordoned
    brokers = max(sum(not each.leaving and each.id not in cordoned for each in image.brokers.values()), 1)
    if name == OFFSETS:
        return TopicSpec(
            name,
            config.offsets_topic_num_partitions,
            min(config.offsets_topic_replication_factor, brokers),
            config={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTIONS:
        replicas = min(config.transaction_state_log_replication_factor, brokers)
        return TopicSpec(
            name,
            config.transaction_state_log_num_partitions,
            replicas,
            config={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                # A value above the number of replicas means all of them, so it stays right when replicas are added.
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == AUDIT:
        return TopicSpec(
            name,
            1,
            min(config.moldau_audit_topic_replication_factor, brokers),
            config={"cleanup.policy": "delete", "max.message.bytes": str(AUDIT_BATCH_BYTES)},
        )
    return None
