"""What lies in __consumer_offsets, as Kafka's own formatters print it. Needs java."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetCommitRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.raw import RawClient
from support.kafka import jvm
from support.log.batches import batch

pytestmark = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")

TOPIC = "__consumer_offsets"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def run_console(broker: AnyBroker, *arguments: str) -> str:
    done = jvm.run(CONSOLE, "--bootstrap-server", broker.bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def partition_of(broker: AnyBroker, group: str) -> int:
    """Where a group's records are: by Java's hash of its name."""
    with RawClient(broker.bootstrap) as raw:
        shards = len(raw.metadata(TOPIC).partitions)
    value = 0
    for letter in group:
        value = (value * 31 + ord(letter)) & 0xFFFFFFFF
    return abs(value - 2**32 if value >= 2**31 else value) % shards


def printed(broker: AnyBroker, formatter: str, group: str) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Key and value of every record of a group that a formatter knows, with the versions that they are in."""
    partition = partition_of(broker, group)
    with RawClient(broker.bootstrap) as raw:
        count = raw.list_offset(TOPIC, -1, partition).offset
    told = run_console(
        broker,
        *("--topic", TOPIC, "--partition", str(partition), "--offset", "earliest", "--max-messages", str(count)),
        *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
        *("--timeout-ms", "10000"),  # if markers of transactions are among them, which nobody is given
    )
    found = list(_objects(told))
    return [(each["key"], each["value"]) for each in found if each["key"]["data"]["group"] == group]


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects one after the other, with nothing in between: so the formatters write."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        found, end = decoder.raw_decode(text, at)
        yield found
        at = text.find("{", end)


def commit(raw: RawClient, group: str, topic: str, offset: int, version: int, retention: int = -1) -> None:
    item = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = item.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=2, committed_metadata="note"
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=retention,
        topics=[item(name=topic, partitions=[partition])],
    )
    while True:
        raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        error = raw.ask(request, version).topics[0].partitions[0].error_code
        if error not in (14, 15, 16):  # loading, not available, not coordinator
            assert error == 0
            return


def test_committed_offsets(broker: AnyBroker, raw: RawClient, create_topic: CreateTopic) -> None:
    name, group = create_topic(), f"java-{uuid.uuid4().hex[:12]}"
    commit(raw, group, name, 42, 9)
    commit(raw, group, name, 43, 4, retention=60_000)
    plain, expiring = printed(broker, "OffsetsMessageFormatter", group)
    key = {"type": 1, "data": {"group": group, "topic": name, "partition": 0}}
    assert (plain[0], expiring[0]) == (key, key)
    assert plain[1] is not None
    assert plain[1]["version"] == 4
    data = plain[1]["data"]
    assert (data["offset"], data["leaderEpoch"], data["metadata"]) == (42, 2, "note")
    assert data["commitTimestamp"] > 1_700_000_000_000
    assert set(data) == {"offset", "leaderEpoch", "metadata", "commitTimestamp", "topicId"}
    assert expiring[1] is not None
    assert expiring[1]["version"] == 1
    data = expiring[1]["data"]
    assert (data["offset"], data["expireTimestamp"] - data["commitTimestamp"]) == (43, 60_000)


def test_group_metadata(broker: AnyBroker, raw: RawClient, create_topic: CreateTopic) -> None:
    name, group = create_topic(), f"java-{uuid.uuid4().hex[:12]}"
    raw.produce(name, batch())
    told = run_console(broker, "--topic", name, "--group", group, "--from-beginning", "--max-messages", "1")
    assert told.splitlines() == ["value"]
    records = printed(broker, "GroupMetadataMessageFormatter", group)
    assert all(key == {"type": 2, "data": {"group": group}} for key, _ in records)
    values = [value for _, value in records if value is not None]
    assert {value["version"] for value in values} == {3}
    stable = next(value["data"] for value in values if value["data"]["members"])
    (member,) = stable["members"]
    assert (stable["protocolType"], stable["leader"]) == ("consumer", member["memberId"])
    assert member["clientId"] == "console-consumer"
    assert values[-1]["data"]["members"] == []
    offsets = printed(broker, "OffsetsMessageFormatter", group)
    assert [value["data"]["offset"] for _, value in offsets if value][-1] == 1
