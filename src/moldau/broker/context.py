"""What a handler may use. Handlers read `ctx.image` once per request and change state through the controller alone."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from moldau.base.errors import Refusal
from moldau.base.session import Session
from moldau.broker.answers import Answers
from moldau.broker.cluster.controller_client import ControllerClient
from moldau.broker.cluster.election_rules import election_rules
from moldau.broker.configs import Layers
from moldau.broker.controller import Controller
from moldau.broker.coordinators.group_coordinator import GroupCoordinator
from moldau.broker.coordinators.transaction_coordinator import TransactionCoordinator
from moldau.broker.departed import Departed
from moldau.broker.holding import Holding
from moldau.broker.peers import Peers
from moldau.broker.producer_ids import ProducerIds
from moldau.broker.sessions import FetchSessions
from moldau.broker.settings import BrokerConfig
from moldau.metadata.elections import ElectionRules
from moldau.metadata.image import CLUSTER_DEFAULT, ClusterImage
from moldau.replication.replicas import Replicas
from moldau.wire.messages.registry import ApiMessages


@dataclass(slots=True)
class Context:
    config: BrokerConfig  # as it is now: replaced when settings are changed while the broker runs
    static: Mapping[str, str]  # the settings it was started with
    served: Sequence[ApiMessages]  # the rows of the table, which needs its handlers and so cannot be imported by them
    controller: Controller
    replicas: Replicas
    sessions: FetchSessions
    answers: Answers
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    holding: Holding
    peers: Peers
    departed: Departed
    now: Callable[[], int]  # milliseconds since the Unix epoch
    controller_client: ControllerClient | None = None  # in a cluster
    serve_forwarded: Callable[[memoryview, Session], Awaitable[bytes | Refusal]] | None = None  # a frame in an envelope

    def rules(self, image: ClusterImage) -> ElectionRules:
        return election_rules(self.config, image)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def layers(self) -> Layers:
        configs = self.image.broker_configs
        return Layers(configs.get(str(self.config.node_id), {}), configs.get(CLUSTER_DEFAULT, {}), self.static)
