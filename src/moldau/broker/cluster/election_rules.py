"""Election rules from settings: min.insync.replicas, unclean.leader.election.enable, cordoned log directories."""

from moldau.base.settings import Value
from moldau.broker.settings import BrokerConfig
from moldau.log.settings import TOPIC
from moldau.metadata.changes import PartitionChanged
from moldau.metadata.elections import ElectionRules, leader_and_isr_changes
from moldau.metadata.image import CLUSTER_DEFAULT, ClusterImage, Topic

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


def election_rules(config: BrokerConfig, image: ClusterImage) -> ElectionRules:
    """The rules at this image: dynamic cluster-wide settings override this broker's static ones."""
    defaults = image.broker_configs.get(CLUSTER_DEFAULT, {})

    def value(topic: Topic, name: str) -> Value:
        text = topic.config.get(name, defaults.get(name))
        return config.values[name] if text is None else TOPIC.parse(name, text)  # type: ignore[return-value]  # checked

    return ElectionRules(
        min_isr=lambda topic: int(value(topic, MIN_ISR)),  # type: ignore[arg-type]  # the row is of kind INT
        unclean=lambda topic: bool(value(topic, UNCLEAN)),
        cordoned=image.cordoned,
    )


def resulting_changes(config: BrokerConfig, before: ClusterImage, after: ClusterImage) -> tuple[PartitionChanged, ...]:
    """Changes of partitions that follow from new settings; they are committed together with the settings.

    KIP-966: with a lower min.insync.replicas records may be committed without the eligible leader replicas, which must
    not be eligible by then.
    """
    if before.broker_configs is after.broker_configs and not _configured(before, after):
        return ()
    return leader_and_isr_changes(after, election_rules(config, after))


def _configured(before: ClusterImage, after: ClusterImage) -> bool:
    if before.topics is after.topics:
        return False
    pairs = ((before.topics.get(name), topic) for name, topic in after.topics.items())
    return any(old is not None and old is not new and old.config != new.config for old, new in pairs)
