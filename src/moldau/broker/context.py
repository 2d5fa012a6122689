"""Contexts of request handlers, in three parts: for data, for the control plane, for coordinators.

Handlers read `ctx.image` once per request and change metadata through the controller alone.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.base.errors import Refusal
from moldau.base.session import Session
from moldau.broker.cluster.controller_client import ControllerClient
from moldau.broker.cluster.election_rules import election_rules
from moldau.broker.configs import Layers
from moldau.broker.controller import Controller
from moldau.broker.coordinators.group_coordinator import GroupCoordinator
from moldau.broker.coordinators.transaction_coordinator import TransactionCoordinator
from moldau.broker.fetch_sessions import FetchSessionCache
from moldau.broker.metadata_cache import MetadataCache
from moldau.broker.organisations.directory import Directory
from moldau.broker.peers import Peers
from moldau.broker.producer_ids import ProducerIds
from moldau.broker.recently_dead import RecentlyDead
from moldau.broker.security.authorizer import Authorizer
from moldau.broker.security.delegation_tokens import DelegationTokens
from moldau.broker.settings import BrokerConfig
from moldau.broker.topics import TopicCreator
from moldau.broker.verification_queue import VerificationQueue
from moldau.metadata.elections import ElectionRules
from moldau.metadata.image import CLUSTER_DEFAULT, ClusterImage
from moldau.replication.replicas import Replicas
from moldau.wire.messages.registry import ApiMessages

ServeForwarded = Callable[[memoryview, Session], Awaitable[bytes | Refusal]]


@dataclass(slots=True)
class RunningConfig:
    """The broker's settings as they are now: replaced as a whole when some are changed while the broker runs."""

    current: BrokerConfig


@dataclass(frozen=True, slots=True)
class _Context:
    running: RunningConfig
    controller: Controller

    @property
    def config(self) -> BrokerConfig:
        return self.running.current

    @property
    def image(self) -> ClusterImage:
        return self.controller.image


@dataclass(frozen=True, slots=True)
class DataContext(_Context):
    """For requests that read and write partitions."""

    replicas: Replicas
    fetch_sessions: FetchSessionCache
    transactions: TransactionCoordinator  # verifies transactional batches
    verification_queue: VerificationQueue
    now: Callable[[], int]  # milliseconds since the Unix epoch
    authorizer: Authorizer | None  # None: every client may do everything


@dataclass(frozen=True, slots=True)
class ControlContext(_Context):
    """For requests that read and change metadata."""

    static: Mapping[str, str]  # the settings that the broker was started with
    served: Sequence[ApiMessages]  # the rows of the table, which needs its handlers and so cannot be imported by them
    topics: TopicCreator
    replicas: Replicas
    peers: Peers
    recently_dead: RecentlyDead
    serve_forwarded: ServeForwarded
    tls_problem: Callable[[Mapping[str, str]], str | None]  # why this broker cannot use these settings
    tokens: DelegationTokens
    authorizer: Authorizer | None
    organisations: Directory
    metadata_cache: MetadataCache = field(default_factory=MetadataCache)

    def rules(self, image: ClusterImage) -> ElectionRules:
        return election_rules(self.config, image)

    def layers(self) -> Layers:
        configs = self.image.broker_configs
        return Layers(configs.get(str(self.config.node_id), {}), configs.get(CLUSTER_DEFAULT, {}), self.static)


@dataclass(frozen=True, slots=True)
class CoordinatorContext(_Context):
    """For requests about groups and transactions."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    producer_ids: ProducerIds
    topics: TopicCreator
    now: Callable[[], int]  # milliseconds since the Unix epoch


class Contexts(NamedTuple):
    data: DataContext
    control: ControlContext
    coordinator: CoordinatorContext
    controller_client: ControllerClient | None  # None on a single node, which is its own controller
