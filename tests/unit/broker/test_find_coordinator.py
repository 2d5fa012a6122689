"""FindCoordinator while the internal topic is being created: the broker that it names knows that it is the one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from moldau.base.errors import WireError
from moldau.broker.apis.find_coordinator import find_coordinator
from moldau.broker.settings import load
from moldau.broker.topics import TopicCreator
from moldau.log.directory import LogDirectory
from moldau.log.settings import LogConfig
from moldau.metadata.image import Broker, ClusterImage, Endpoint, PartitionState, Topic
from moldau.replication.replicas import Replicas
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from support.brokers.calls import a_call
from support.log.logs import NOW
from support.net.loops import run

OFFSETS = "__consumer_offsets"
CONFIG, _ = load({})
NODE = CONFIG.node_id
OTHER = NODE + 1


def image_of(*leaders: int) -> ClusterImage:
    states = tuple(PartitionState(index, (leader,), (leader,), leader) for index, leader in enumerate(leaders))
    topic = Topic(OFFSETS, UUID(int=1), states, {})
    brokers = {each: Broker(each, {"PLAINTEXT": Endpoint("localhost", 9000 + each)}) for each in (NODE, OTHER)}
    return ClusterImage(brokers=brokers, topics={OFFSETS: topic}, topics_by_id={topic.id: topic})


def test_a_request_beside_the_one_that_creates_the_topic_waits_for_its_logs(tmp_path: Path) -> None:
    async def main() -> None:
        directories = [LogDirectory.open(tmp_path)]
        replicas = Replicas(NODE, directories, lambda each: LogConfig.of(each.config), lambda: NOW, 86_400_000)
        replicas.load(ClusterImage(), 1, lambda: False)
        image = image_of(NODE, OTHER)
        policy: Any = None  # for topics that clients create
        controller: Any = SimpleNamespace(image=image)
        topics = TopicCreator(controller, None, replicas, lambda: CONFIG, policy)
        ctx: Any = SimpleNamespace(image=image, topics=topics)

        replicas.follow(ClusterImage(), image)
        keys = tuple(f"group-{number}" for number in range(8))  # of both partitions
        asked = find_coordinator(ctx, FindCoordinatorRequest(coordinator_keys=keys), a_call(4))
        assert replicas.get(OFFSETS, 0) is None
        assert not isinstance(asked, FindCoordinatorResponse)
        found = (await asked).coordinators  # type: ignore[misc]
        assert replicas.get(OFFSETS, 0) is not None, "an OffsetCommit would hear NOT_COORDINATOR"
        assert {each.node_id for each in found} == {NODE, OTHER}
        assert {each.error_code for each in found} == {WireError.NONE}

        again = find_coordinator(ctx, FindCoordinatorRequest(coordinator_keys=keys), a_call(4))
        assert isinstance(again, FindCoordinatorResponse), "there is nothing to wait for"
        assert again.coordinators == found
        await replicas.stop()

    run("asyncio", main())
