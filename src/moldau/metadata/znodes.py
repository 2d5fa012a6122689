"""The cluster image as znodes, in the layout that Kafka used on ZooKeeper. Pure.

`ops_for` gives the operations that write a change, `image_from` reads the whole image back. Three numbers are also
znode versions, so that compare-and-set needs nothing but the image: a partition epoch is the version of its state
znode, the image's version is that of the head of the change feed, which every change sets, and the controller epoch is
that of its znode, so that the changes of a fenced controller fail on their first operation.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.base.tree import Check, Create, Delete, Op, Set
from moldau.base.uuids import text_of, uuid_of
from moldau.metadata import documents
from moldau.metadata.changes import (
    BrokerConfigured,
    BrokerGone,
    BrokerLeaving,
    BrokerRegistered,
    Change,
    ChangeSet,
    ControllerElected,
    DocumentsChanged,
    FeaturesFinalized,
    GroupConfigured,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    fold,
    from_json,
    to_json,
)
from moldau.metadata.image import CLUSTER_DEFAULT, NO_BROKER, Broker, ClusterImage, Endpoint, PartitionState, Topic

S = TypeVar("S")
T = TypeVar("T")

BROKERS = "/brokers/ids"
CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
FEATURES = "/feature"
PRODUCER_IDS = "/latest_producer_id_block"
TOPICS = "/brokers/topics"
FEED = "/moldau/changes"  # its data is the number of the last change; its children are the last changes by number

# What `image_from` reads, beside the head of the feed.
ROOTS = (
    "/cluster",
    "/brokers",
    "/config",
    *(root for root in documents.ROOTS if not root.startswith("/config/")),
    CONTROLLER,
    CONTROLLER_EPOCH,
    FEATURES,
    PRODUCER_IDS,
)

DEFAULT_BROKER_NODE = "<default>"
DELETED = b""  # the data of a topic's znode that is no topic: it is being deleted, or created
DELETED_AT_ONCE = 1_500  # partitions that are deleted with their topic; those of a larger topic are deleted later
CREATED_AT_ONCE = 350  # partitions that are created with their topic; those of a larger topic are created before
STAGED_AT_ONCE = 700  # partitions that one transaction creates before their topic

_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: a topic with many partitions has many znodes


class MalformedZnodeError(Exception):
    """A znode has unexpected data; the text names it."""


def founding_ops(cluster_id: str) -> list[Op]:
    """The znodes of a new cluster."""
    return [
        Create("/cluster"),
        Create(CLUSTER_ID, _json({"version": "1", "id": cluster_id})),
        *(Create(path) for path in ("/brokers", BROKERS, TOPICS)),
        *(Create(path) for path in ("/config", "/config/topics", "/config/brokers", "/config/groups")),
        Create(CONTROLLER_EPOCH, b"0"),
        Create(FEATURES, _json({"version": 1, "features": {}, "epoch": -1})),
        Create(PRODUCER_IDS, _json({"version": 1, "broker": NO_BROKER, "block_start": "0", "block_end": "-1"})),
        Create("/moldau"),
        Create(FEED, b"0"),
    ]


def ops_for(change: Change, image: ClusterImage) -> list[Op]:
    """The operations of a change: fenced by the controller epoch, with an entry in the change feed."""
    number = image.version + 1
    return [
        Check(CONTROLLER_EPOCH, image.controller_epoch),
        *(op for step in _steps(change, image) for op in _writes(*step)),
        Create(entry_path(number), to_json(change)),
        Set(FEED, str(number).encode(), image.version),
    ]


def entry_path(number: int) -> str:
    return f"{FEED}/{number:010d}"


def feed_entry(path: str, data: bytes) -> Change:
    return _read(path, data, from_json)


def _steps(change: Change, image: ClusterImage) -> Iterator[tuple[Change, ClusterImage, ClusterImage]]:
    """The steps of a change, each with the image before and after it.

    Consecutive changes of different partitions are one step, a change set: there may be thousands.
    """
    run: dict[TopicPartition, PartitionChanged] = {}
    for part in (*_flat(change), None):
        if isinstance(part, PartitionChanged) and TopicPartition(part.topic, part.index) not in run:
            run[TopicPartition(part.topic, part.index)] = part
            continue
        if run:
            step = ChangeSet(tuple(run.values()))
            after = fold(image, step)
            yield step, image, after
            image = after
            run.clear()
        if isinstance(part, PartitionChanged):
            run[TopicPartition(part.topic, part.index)] = part
        elif part is not None:
            after = fold(image, part)
            yield part, image, after
            image = after


def _flat(change: Change) -> Iterator[Change]:
    if isinstance(change, ChangeSet):
        for part in change.changes:
            yield from _flat(part)
    else:
        yield change


def _writes(change: Change, image: ClusterImage, after: ClusterImage) -> Iterator[Op]:
    match change:
        case TopicCreated():
            yield from _create_topic(after.topics[change.topic])
        case TopicDeleted():
            yield from _delete_topic(image.topics[change.topic])
        case PartitionsAdded():
            topic = after.topics[change.topic]
            yield Set(topic_path(topic.name), _topic_data(topic))
            yield from _create_states(topic.name, change.partitions)
        case TopicConfigured():
            yield Set(_config_path(change.topic), _config_data(change.config))
        case PartitionChanged():
            yield from _change_partitions((change,), image, after)
        case BrokerConfigured():
            path = f"/config/brokers/{change.broker_name or DEFAULT_BROKER_NODE}"
            yield from _configure(path, change.config, exists=change.broker_name in image.broker_configs)
        case GroupConfigured():
            path = _group_config_path(change.group)
            yield from _configure(path, change.config, exists=change.group in image.group_configs)
        case DocumentsChanged():
            yield from documents.writes(change.documents, image.documents, after.documents)
        case BrokerRegistered():
            if change.broker.id in image.brokers:  # the znode of an earlier session
                yield Delete(broker_path(change.broker.id))
            broker = after.brokers[change.broker.id]
            yield Create(broker_path(broker.id), _broker_data(broker), ephemeral=True)
        case BrokerGone():
            if not change.expired:
                yield Delete(broker_path(change.broker_id))
            if not change.expired and image.controller_id == change.broker_id:
                yield Delete(CONTROLLER)
        case BrokerLeaving():
            broker = after.brokers[change.broker_id]
            yield Set(broker_path(broker.id), _broker_data(broker))
        case ControllerElected():
            yield Create(CONTROLLER, _json({"version": 1, "brokerid": change.broker_id}), ephemeral=True)
            yield Set(CONTROLLER_EPOCH, str(after.controller_epoch).encode(), image.controller_epoch)
        case FeaturesFinalized():
            yield Set(FEATURES, _json({"version": 1, "features": dict(after.features), "epoch": after.features_epoch}))
        case ProducerIdsAllocated():
            yield Set(PRODUCER_IDS, _producer_ids_data(change, image))
        case ChangeSet():  # of partitions: see `_steps`
            yield from _change_partitions(change.changes, image, after)


def touched(change: Change) -> Iterator[tuple[str, bool]]:
    """Paths that a change may have written, and whether everything below them is included."""
    small = [(path, True) for path in (BROKERS, "/config/brokers", "/config/groups")]
    small += [(path, False) for path in (CONTROLLER, CONTROLLER_EPOCH, FEATURES, PRODUCER_IDS)]
    for part in _flat(change):
        match part:
            case TopicCreated() | TopicDeleted() | PartitionsAdded():
                yield topic_path(part.topic), True
                yield _config_path(part.topic), False
            case TopicConfigured():
                yield _config_path(part.topic), False
            case PartitionChanged():
                yield topic_path(part.topic), False
                yield _state_path(part.topic, part.index), False
            case DocumentsChanged():
                yield from ((root, True) for root in documents.ROOTS)
            case _:
                yield from small


def _create_topic(topic: Topic) -> Iterator[Op]:
    if len(topic.partitions) > CREATED_AT_ONCE:
        yield Check(_partitions_path(topic.name), len(_staged(topic.partitions)))
        yield Set(topic_path(topic.name), _topic_data(topic), 0)
    else:
        yield Create(topic_path(topic.name), _topic_data(topic))
        yield Create(_partitions_path(topic.name))
        yield from _create_states(topic.name, topic.partitions)
    yield Create(_config_path(topic.name), _config_data(topic.config))


def large_topics(change: Change) -> list[TopicCreated]:
    """The new topics that are too large for one transaction: `staging_ops` come before the change itself."""
    return [each for each in _flat(change) if isinstance(each, TopicCreated) and len(each.partitions) > CREATED_AT_ONCE]


def staging_ops(topic: TopicCreated, controller_epoch: int) -> Iterator[list[Op]]:
    """The transactions that prepare a large topic, which is not visible yet.

    Each raises the version of the znode above the partitions, by which the change itself checks that all are done.
    """
    fence = Check(CONTROLLER_EPOCH, controller_epoch)
    yield [fence, Create(topic_path(topic.topic), DELETED), Create(_partitions_path(topic.topic))]
    for number, states in enumerate(_staged(topic.partitions)):
        yield [fence, Set(_partitions_path(topic.topic), b"", number), *_create_states(topic.topic, states)]


def _staged(partitions: Sequence[PartitionState]) -> list[Sequence[PartitionState]]:
    return [partitions[at : at + STAGED_AT_ONCE] for at in range(0, len(partitions), STAGED_AT_ONCE)]


def _create_states(topic: str, partitions: Sequence[PartitionState]) -> Iterator[Op]:
    for state in partitions:
        yield Create(_partition_path(topic, state.index))
        yield Create(_state_path(topic, state.index), _state_data(state))


def _delete_topic(topic: Topic) -> Iterator[Op]:
    yield Delete(_config_path(topic.name))
    if len(topic.partitions) > DELETED_AT_ONCE:
        yield Set(topic_path(topic.name), DELETED)
        return
    for state in topic.partitions:
        yield Delete(_state_path(topic.name, state.index))
        yield Delete(_partition_path(topic.name, state.index))
    yield Delete(_partitions_path(topic.name))
    yield Delete(topic_path(topic.name))


def _change_partitions(changes: Iterable[Change], image: ClusterImage, after: ClusterImage) -> Iterator[Op]:
    reassigned: dict[str, Topic] = {}
    for change in changes:
        assert isinstance(change, PartitionChanged)
        topic = after.topics[change.topic]
        old, new = image.topics[change.topic].partitions[change.index], topic.partitions[change.index]
        yield Set(_state_path(topic.name, new.index), _state_data(new), old.partition_epoch)
        if (new.replicas, new.adding, new.removing) != (old.replicas, old.adding, old.removing):
            reassigned[topic.name] = topic
    for name, topic in reassigned.items():
        yield Set(topic_path(name), _topic_data(topic))


def _configure(path: str, config: Mapping[str, str], *, exists: bool) -> Iterator[Op]:
    if not config:
        if exists:
            yield Delete(path)
    elif exists:
        yield Set(path, _config_data(config))
    else:
        yield Create(path, _config_data(config))


def image_from(tree: Mapping[str, bytes]) -> ClusterImage:
    """The image in these znodes (the subtrees of ROOTS, and FEED itself). Raises MalformedZnodeError."""
    states: dict[str, dict[int, bytes]] = {}
    topic_nodes: dict[str, bytes] = {}
    configs: dict[str, Mapping[str, str]] = {}
    broker_configs: dict[str, Mapping[str, str]] = {}
    group_configs: dict[str, Mapping[str, str]] = {}
    brokers: dict[int, Broker] = {}
    texts: dict[str, str] = {}
    for path, data in tree.items():
        if documents.is_document(path):
            if data:
                texts[path] = _read(path, data, bytes.decode)
            continue
        match path.split("/")[1:]:
            case ["brokers", "topics", name, "partitions", index, "state"]:
                states.setdefault(name, {})[_read(path, index, int)] = data
            case ["brokers", "topics", name]:
                if data != DELETED:
                    topic_nodes[name] = data
            case ["brokers", "ids", _]:
                broker = _read(path, data, parse_broker)
                brokers[broker.id] = broker
            case ["config", "topics", name]:
                configs[name] = _read(path, data, _parse_config)
            case ["config", "brokers", name]:
                broker_configs[CLUSTER_DEFAULT if name == DEFAULT_BROKER_NODE else name] = _read(
                    path, data, _parse_config
                )
            case ["config", "groups", name]:
                group_configs[unquote(name)] = _read(path, data, _parse_config)
    topics = {
        name: _topic_from(name, data, states.get(name, {}), configs.get(name, {})) for name, data in topic_nodes.items()
    }
    features, features_epoch = _read_node(tree, FEATURES, _parse_features)
    return ClusterImage(
        cluster_id=_read_node(tree, CLUSTER_ID, lambda data: str(json.loads(data)["id"])),
        version=_read_node(tree, FEED, int),
        controller_id=_read_node(tree, CONTROLLER, _parse_controller) if CONTROLLER in tree else NO_BROKER,
        controller_epoch=_read_node(tree, CONTROLLER_EPOCH, int),
        brokers=brokers,
        topics=topics,
        topics_by_id={topic.id: topic for topic in topics.values()},
        broker_configs=broker_configs,
        group_configs=group_configs,
        documents=texts,
        features=features,
        features_epoch=features_epoch,
        next_producer_id=_read_node(tree, PRODUCER_IDS, lambda data: int(json.loads(data)["block_end"]) + 1),
    )


def _topic_from(name: str, data: bytes, states: Mapping[int, bytes], config: Mapping[str, str]) -> Topic:
    topic_id, assignment, adding, removing = _read(topic_path(name), data, _parse_topic)
    if sorted(assignment) != list(range(len(assignment))) or assignment.keys() != states.keys():
        raise MalformedZnodeError(f"{topic_path(name)}: its partitions and their states do not match")
    partitions = tuple(
        replace(
            _read(_state_path(name, index), states[index], partial(_parse_state, index, assignment[index])),
            adding=adding.get(index, ()),
            removing=removing.get(index, ()),
        )
        for index in range(len(assignment))
    )
    return Topic(name, topic_id, partitions, config)


def _read(path: str, data: S, parse: Callable[[S], T]) -> T:
    try:
        return parse(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedZnodeError(f"{path}: {error!r}") from error


def _read_node(tree: Mapping[str, bytes], path: str, parse: Callable[[bytes], T]) -> T:
    if path not in tree:
        raise MalformedZnodeError(f"{path} is missing")
    return _read(path, tree[path], parse)


# The nodes' own forms, writer beside reader.


def _topic_data(topic: Topic) -> bytes:
    return _json(
        {
            "version": 3,
            "topic_id": text_of(topic.id),
            "partitions": {str(state.index): state.replicas for state in topic.partitions},
            "adding_replicas": {str(state.index): state.adding for state in topic.partitions if state.adding},
            "removing_replicas": {str(state.index): state.removing for state in topic.partitions if state.removing},
        }
    )


Assignment = dict[int, tuple[int, ...]]


def _parse_topic(data: bytes) -> tuple[UUID, Assignment, Assignment, Assignment]:
    form = json.loads(data)
    names = ("partitions", "adding_replicas", "removing_replicas")
    placed, adding, removing = ({int(index): tuple(ids) for index, ids in form[name].items()} for name in names)
    return uuid_of(form["topic_id"]), placed, adding, removing


def _state_data(state: PartitionState) -> bytes:
    return _json(
        {
            "version": 1,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
            "partition_epoch": state.partition_epoch,
            "elr": state.elr,
            **({"last": state.last} if state.last != NO_BROKER else {}),
        }
    )


def _parse_state(index: int, replicas: tuple[int, ...], data: bytes) -> PartitionState:
    form = json.loads(data)
    return PartitionState(
        index=index,
        replicas=replicas,
        isr=tuple(form["isr"]),
        leader=form["leader"],
        leader_epoch=form["leader_epoch"],
        partition_epoch=form["partition_epoch"],
        elr=tuple(form.get("elr", ())),  # stores of earlier releases have none
        last=form.get("last", NO_BROKER),
    )


def _config_data(config: Mapping[str, str]) -> bytes:
    return _json({"version": 1, "config": dict(config)})


def _parse_config(data: bytes) -> Mapping[str, str]:
    return dict(json.loads(data)["config"])


def _broker_data(broker: Broker) -> bytes:
    endpoints = [f"{name}://{_bracketed(host)}:{port}" for name, (host, port) in broker.endpoints.items()]
    form = {"version": 5, "id": broker.id, "endpoints": endpoints, "rack": broker.rack, "epoch": broker.epoch}
    return _json({**form, "leaving": broker.leaving, "inter_broker_listener": broker.inter_broker_listener})


def parse_broker(data: bytes) -> Broker:
    form = json.loads(data)
    endpoints = {}
    for text in form["endpoints"]:
        name, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        endpoints[name] = Endpoint(host.removeprefix("[").removesuffix("]"), int(port))
    listener = form.get("inter_broker_listener", "")
    return Broker(form["id"], endpoints, form["rack"], form["epoch"], form.get("leaving", False), listener)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _parse_controller(data: bytes) -> int:
    return int(json.loads(data)["brokerid"])


def _parse_features(data: bytes) -> tuple[Mapping[str, int], int]:
    form = json.loads(data)
    return dict(form["features"]), int(form["epoch"])


def _producer_ids_data(change: ProducerIdsAllocated, image: ClusterImage) -> bytes:
    start, end = image.next_producer_id, change.next_producer_id - 1
    return _json({"version": 1, "broker": change.broker_id, "block_start": str(start), "block_end": str(end)})


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def _partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def _partition_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}"


def _state_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}/state"


def _config_path(topic: str) -> str:
    return f"/config/topics/{topic}"


def _group_config_path(group: str) -> str:
    return f"/config/groups/{documents.segment(group)}"


def broker_path(broker_id: int) -> str:
    return f"{BROKERS}/{broker_id}"


def _json(form: Mapping[str, Any]) -> bytes:
    return _encode(form).encode()
