"""The topics that coordinators keep their state in: created when first needed, with settings of their own."""

from moldau.broker.settings import BrokerConfig
from moldau.metadata.image import ClusterImage
from moldau.metadata.topics import TopicSpec

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"


def internal_spec(name: str, config: BrokerConfig, image: ClusterImage) -> TopicSpec | None:
    """How a topic of this name is created; None where it is nobody's but the users'.

    Their default of three replicas is what a cluster wants. With fewer brokers there are as many as there can be.
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
                # More than there are replicas of asks for all of them, so this holds when there are more as well.
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    return None
