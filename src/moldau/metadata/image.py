"""The cluster's metadata as one immutable value: brokers, topics, partitions, configs, documents, features.

Handlers take `image = ctx.image` once per request and read from it; only `metadata.changes.apply` makes new ones. The
store is not known here. Equality is by value, so that an image can be compared with one loaded from disk.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from moldau.base.ids import Epoch

NO_BROKER = -1  # a partition without a leader, a cluster without a controller
CLUSTER_DEFAULT = ""  # the broker config that holds for every broker without one of its own

# KIP-1066: a broker with this setting gets no new replicas, and leads only partitions that no other can lead.
CORDONED, ALL_DIRECTORIES = "cordoned.log.dirs", "*"

INTERNAL_TOPICS = frozenset(("__audit", "__consumer_offsets", "__transaction_state", "__share_group_state"))


class Endpoint(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker. Its epoch is the number of the change that registered it: a restart gets a greater one."""

    id: int
    endpoints: Mapping[str, Endpoint]  # by listener name
    rack: str | None = None
    epoch: Epoch = -1
    leaving: bool = False  # in controlled shutdown: it gets no new partitions
    inter_broker_listener: str = ""  # the listener of other brokers that it connects to; unknown of earlier releases


@dataclass(frozen=True, slots=True)
class PartitionState:
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: Epoch = 0
    partition_epoch: Epoch = 0  # grows with every change of the partition, for compare-and-set
    adding: tuple[int, ...] = ()  # replicas that a reassignment adds
    removing: tuple[int, ...] = ()  # replicas that it removes when it completes
    elr: tuple[int, ...] = ()  # eligible leader replicas (KIP-966): out of the ISR, with all committed records
    last: int = NO_BROKER  # while the ISR is empty: its last member, which may have lost records


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: UUID
    partitions: tuple[PartitionState, ...]  # partition i is at place i
    config: Mapping[str, str] = field(default_factory=dict)  # only values set for this topic

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """`version` is the number of changes that led here."""

    cluster_id: str = ""
    version: int = 0
    controller_id: int = NO_BROKER
    controller_epoch: Epoch = 0
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, Topic] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by broker id as text, or ""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by group id
    documents: Mapping[str, str] = field(default_factory=dict)  # of users, ACLs, tokens…, by path: see documents.py
    features: Mapping[str, int] = field(default_factory=dict)
    features_epoch: int = -1  # the version that finalized the features; KIP-584: -1 means none yet
    next_producer_id: int = 0

    @property
    def cordoned(self) -> frozenset[int]:
        """Brokers, registered or not, that get no new replicas."""
        named = {name: config.get(CORDONED, "") for name, config in self.broker_configs.items() if name}
        return frozenset(int(name) for name, what in named.items() if what.strip() == ALL_DIRECTORIES)

    def partition(self, topic: str, index: int) -> PartitionState | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]
