"""Topic creation, for CreateTopics and for auto-creation: settings checked, change made, logs open when it returns."""

from collections.abc import Callable, Sequence
from random import randrange

from moldau.base.errors import Refusal
from moldau.broker import configs
from moldau.broker.cluster.controller_client import ControllerClient
from moldau.broker.controller import Controller
from moldau.broker.fresh import fresh_id
from moldau.broker.internal_topics import internal_spec
from moldau.broker.organisations.policy import TopicPolicy
from moldau.broker.settings import BrokerConfig
from moldau.metadata.changes import Change, Decide
from moldau.metadata.image import ClusterImage
from moldau.metadata.topics import TopicDefaults, TopicSpec, create_topic
from moldau.replication.replicas import Replicas
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

MAX_START = 2**31
CREATE_VERSION = 7
AUTO_CREATE_TIMEOUT_S = 10.0  # how long a client waits for a topic that it needs; it retries after that


class TopicCreator:
    """`client` is None on a single node, which is its own controller."""

    def __init__(
        self,
        controller: Controller,
        client: ControllerClient | None,
        replicas: Replicas,
        config: Callable[[], BrokerConfig],
        policy: TopicPolicy,
    ) -> None:
        self.policy = policy
        self._controller = controller
        self._client = client
        self._replicas = replicas
        self._config = config

    def deciding(self, spec: TopicSpec) -> Decide:
        """The decision to create this topic, for the controller to make."""
        current = self._config()
        defaults = TopicDefaults(current.num_partitions, current.default_replication_factor)
        topic_id, start = fresh_id(), randrange(MAX_START)

        def decide(image: ClusterImage) -> Change | Refusal:
            config = configs.new_topic(list(spec.config.items()), self._config().values)
            decision = create_topic(image, spec, topic_id=topic_id, defaults=defaults, start=start)
            if isinstance(decision, Refusal):
                return decision
            return config if isinstance(config, Refusal) else self.policy.creating(image, decision)

        return decide

    async def create(self, specs: Sequence[TopicSpec]) -> list[Change | Refusal]:
        """Create these topics in one change, as far as possible; when this returns, they can be written to."""
        return await self.submit([self.deciding(spec) for spec in specs])

    async def submit(self, decides: Sequence[Decide]) -> list[Change | Refusal]:
        """As `create`, by decisions."""
        decisions = await self._controller.submit_each(decides)
        await self._replicas.settled()
        return decisions

    async def create_missing(self, names: Sequence[str]) -> None:
        """Create topics that a client or a coordinator needs, here or by the controller. Failures are not reported:
        the topic is missing in the image.
        """
        await self.create_specified([self._spec(name) for name in names])

    async def create_specified(self, specs: Sequence[TopicSpec]) -> None:
        """As `create_missing`, by specifications."""
        if self._client is None or self._controller.leads:
            await self.create(specs)
            return
        request = CreateTopicsRequest(
            topics=tuple(
                CreatableTopic(
                    name=spec.name,
                    num_partitions=spec.partitions,
                    replication_factor=spec.replication,
                    assignments=(),
                    configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in spec.config.items()),
                )
                for spec in specs
            ),
            timeout_ms=int(AUTO_CREATE_TIMEOUT_S * 1000),
        )
        await self._client.carry_out(request, CREATE_VERSION, AUTO_CREATE_TIMEOUT_S)
        await self._replicas.settled()

    def open_here(self, name: str) -> bool:
        """Whether the logs are open of all partitions of this topic that this broker leads."""
        led = (
            index
            for index, state in enumerate(self._controller.image.topics[name].partitions)
            if state.leader == self._config().node_id
        )
        return all(self._replicas.get(name, index) is not None for index in led)

    async def settled(self) -> None:
        """Until the logs of all topics that exist now are open, as far as the disks let them."""
        await self._replicas.settled()

    def _spec(self, name: str) -> TopicSpec:
        """Internal topics have settings of their own."""
        return internal_spec(name, self._config(), self._controller.image) or TopicSpec(name)
