"""The layout of the znodes, which other tools read, and reading damaged ones."""

import json
from dataclasses import replace
from uuid import UUID

import pytest

from moldau.base.tree import Check, Create, Delete, Op, Set
from moldau.metadata import znodes
from moldau.metadata.changes import (
    BrokerRegistered,
    ChangeSet,
    ControllerElected,
    GroupConfigured,
    PartitionChanged,
    TopicCreated,
    TopicDeleted,
    apply,
    from_json,
    to_json,
)
from moldau.metadata.image import Broker, ClusterImage, Endpoint, PartitionState

TOPIC_ID = UUID("7fffffff-ffff-4fff-bfff-ffffffffffff")
CREATED = TopicCreated("t", TOPIC_ID, (PartitionState(0, (1,), (1,), 1),), {"retention.ms": "5"})


def founded() -> dict[str, bytes]:
    return written({}, znodes.founding_ops("cluster"))


def written(nodes: dict[str, bytes], ops: list[Op]) -> dict[str, bytes]:
    return nodes | {op.path: op.data for op in ops if isinstance(op, Create | Set)}


def test_a_founded_tree_is_an_empty_cluster() -> None:
    assert znodes.image_from(founded()) == ClusterImage(cluster_id="cluster")


def test_a_topic_lies_where_kafkas_tools_look_for_it() -> None:
    nodes = written({}, znodes.ops_for(CREATED, ClusterImage()))
    assert json.loads(nodes["/brokers/topics/t"]) == {
        "version": 3,
        "topic_id": "f_______T_-__________w",
        "partitions": {"0": [1]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    state = json.loads(nodes["/brokers/topics/t/partitions/0/state"])
    assert (state["leader"], state["leader_epoch"], state["isr"]) == (1, 0, [1])
    assert json.loads(nodes["/config/topics/t"]) == {"version": 1, "config": {"retention.ms": "5"}}


@pytest.mark.parametrize(
    ("group", "path"),
    [("g.1", "/config/groups/g.1"), ("a/b", "/config/groups/a%2Fb"), ("..", "/config/groups/%2E%2E")],
)
def test_settings_of_a_group_lie_beside_those_of_topics(group: str, path: str) -> None:
    own = {"consumer.session.timeout.ms": "50000"}
    change = GroupConfigured(group, own)
    nodes = written(founded(), znodes.ops_for(change, ClusterImage()))
    assert json.loads(nodes[path]) == {"version": 1, "config": own}
    assert znodes.image_from(nodes).group_configs == {group: own} == apply(ClusterImage(), change).group_configs
    gone = GroupConfigured(group, {})
    image = apply(ClusterImage(), change)
    assert Delete(path) in znodes.ops_for(gone, image)
    assert apply(image, gone).group_configs == {}


def test_every_change_is_fenced_and_numbered() -> None:
    image = ClusterImage(version=6, controller_epoch=4)
    ops = znodes.ops_for(CREATED, image)
    assert ops[0] == Check("/controller_epoch", 4)
    assert ops[-2].path == "/moldau/changes/0000000007"
    assert ops[-1] == Set("/moldau/changes", b"7", 6)
    assert znodes.feed_entry(ops[-2].path, ops[-2].data) == CREATED


def test_a_partition_change_compares_the_partition_epoch() -> None:
    image = apply(ClusterImage(), CREATED)
    first = PartitionChanged("t", 0, (1,), (1,), leader=-1, leader_epoch=1)
    second = PartitionChanged("t", 0, (1,), (1,), leader=1, leader_epoch=2)
    sets = [op for op in znodes.ops_for(ChangeSet((first, second)), image) if op.path.endswith("/state")]
    assert [op.version for op in sets] == [0, 1]


def test_brokers_and_controller_vanish_with_their_session() -> None:
    broker = Broker(1, {"PLAINTEXT": Endpoint("::1", 9092)}, rack="r", inter_broker_listener="PLAINTEXT")
    ops = znodes.ops_for(ChangeSet((ControllerElected(1), BrokerRegistered(broker))), ClusterImage())
    ephemeral = {op.path for op in ops if isinstance(op, Create) and op.ephemeral}
    assert ephemeral == {"/controller", "/brokers/ids/1"}
    nodes = written(founded(), ops)
    assert json.loads(nodes["/brokers/ids/1"])["endpoints"] == ["PLAINTEXT://[::1]:9092"]
    assert znodes.image_from(nodes).brokers[1] == replace(broker, epoch=1)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/brokers/topics/t", b"{"),
        ("/brokers/topics/t", b"[]"),
        ("/brokers/topics/t", b'{"topic_id":"short","partitions":{}}'),
        ("/brokers/topics/t", b'{"topic_id":"_________________________________","partitions":{}}'),
        ("/brokers/topics/t/partitions/0/state", b"\xff"),
        ("/brokers/topics/t/partitions/0/state", b"{}"),
        ("/brokers/topics/t/partitions/1/state", b"{}"),
        ("/brokers/topics/t/partitions/x/state", b"{}"),
        ("/brokers/ids/1", b'{"id":1,"endpoints":["nonsense"],"rack":null,"epoch":1}'),
        ("/config/topics/t", b"5"),
        ("/controller_epoch", b"many"),
        ("/moldau/changes", b""),
        ("/feature", b"{}"),
    ],
)
def test_a_damaged_node_is_named(path: str, data: bytes) -> None:
    nodes = written(founded(), znodes.ops_for(CREATED, ClusterImage())) | {path: data}
    with pytest.raises(znodes.MalformedZnodeError, match="/"):
        znodes.image_from(nodes)


def test_a_missing_node_is_named() -> None:
    nodes = founded()
    del nodes["/cluster/id"]
    with pytest.raises(znodes.MalformedZnodeError, match="/cluster/id is missing"):
        znodes.image_from(nodes)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"change":"Nonsense"}', b'{"change":"TopicDeleted"}', b"[" * 5000]
)
def test_a_damaged_feed_entry_is_named(data: bytes) -> None:
    with pytest.raises(znodes.MalformedZnodeError, match="/moldau/changes/1"):
        znodes.feed_entry("/moldau/changes/1", data)


def test_a_change_set_is_called_a_batch_in_the_feed() -> None:
    """Brokers of earlier releases read it, and wrote it so."""
    entry = b'{"change":"Batch","changes":[{"change":"TopicDeleted","topic":"t"}]}'
    change = ChangeSet((TopicDeleted("t"),))
    assert to_json(change) == entry
    assert from_json(entry) == change
