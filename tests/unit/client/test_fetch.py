"""Readers follow where leaders send them, and come back. Brokers here are a few lines of Python."""

from typing import Any
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.client.direct.connection import ConnectionLost
from moldau.client.direct.failure import Failure
from moldau.client.direct.fetch import FetchedBatches, read_range
from moldau.client.direct.metadata import Leader, Topic
from moldau.client.direct.records import decode, encode
from moldau.client.direct.retries import Retries
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

PLACE = TopicPartition("t", 0)
LEADER, REPLICA = 0, 1
OUT_OF_RANGE = 1


class World:
    """A leader that knows a replica in rack `near`, and what the replica says to each request."""

    timeout_s = 1.0

    def __init__(self, rack: str, replica_has: int) -> None:
        self.rack = rack
        self.replica_has = replica_has  # offsets; it has lost its connection at this one
        self.asked: list[tuple[int, int]] = []

    def retries(self, timeout_s: float | None = None) -> Retries:
        return Retries(0.3)

    def topic(self, name: str, retries: Retries | None = None) -> Topic:
        return Topic(name, UUID(int=7), False, {0: Leader(LEADER, 3)})

    def leader(self, tp: TopicPartition, retries: Retries | None = None) -> Leader:
        return Leader(LEADER, 3)

    def has_broker(self, node_id: int) -> bool:
        return node_id in (LEADER, REPLICA)

    def forget(self, *names: str) -> None:
        return None

    def dedicated_connection(self, node_id: int) -> "Wire":
        return Wire(self, node_id)

    def release(self, connection: "Wire") -> None:
        connection.close()


class Wire:
    stale = False

    def __init__(self, world: World, node_id: int) -> None:
        self.world, self.node_id, self.address = world, node_id, f"broker-{node_id}"

    def close(self) -> None:
        return None

    def send(self, request: FetchRequest, answer: type) -> FetchRequest:
        return request

    def receive(self, request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        self.world.asked.append((self.node_id, offset))
        if self.node_id == LEADER and request.rack_id == "near" and offset < 5:
            part = answered(preferred_read_replica=REPLICA)
        elif self.node_id == REPLICA and offset == self.world.replica_has:
            raise ConnectionLost("gone")
        elif self.node_id == REPLICA and offset > self.world.replica_has:
            part = answered(error_code=OUT_OF_RANGE)
        else:
            part = answered(records=batch(offset))
        topic = FetchableTopicResponse(topic="t", topic_id=UUID(int=7), partitions=(part,))
        return FetchResponse(responses=(topic,))


def answered(**row: Any) -> PartitionData:
    ends = {"high_watermark": 9, "last_stable_offset": 9, "log_start_offset": 0}
    return PartitionData(
        **{"partition_index": 0, "error_code": 0, "aborted_transactions": (), "records": b""} | ends | row
    )


def batch(offset: int) -> bytes:
    (encoded,) = encode([None], [b"%d" % offset], [0])
    return offset.to_bytes(8, "big") + encoded.data[8:]


def read(world: World) -> list[bytes | None]:
    values: list[bytes | None] = []
    for chunk in read_range(world, PLACE, 0, 9):  # type: ignore[arg-type]
        assert isinstance(chunk, FetchedBatches), chunk
        values += decode(chunk.batches).values
    return values


def test_a_reader_without_a_rack_stays_with_the_leader() -> None:
    world = World("", replica_has=9)
    assert read(world) == [b"%d" % offset for offset in range(9)]
    assert {node for node, _ in world.asked} == {LEADER}


def test_a_reader_goes_where_the_leader_sends_it() -> None:
    world = World("near", replica_has=9)
    assert read(world) == [b"%d" % offset for offset in range(9)]
    assert world.asked[0] == (LEADER, 0)
    assert {node for node, _ in world.asked[1:]} == {REPLICA}


def test_a_reader_comes_back_when_the_replica_has_no_more() -> None:
    world = World("near", replica_has=6)
    assert read(world) == [b"%d" % offset for offset in range(9)]
    assert world.asked[-1][0] == LEADER


def test_a_replica_that_stays_away_is_told_in_the_end() -> None:
    found = list(read_range(World("near", replica_has=0), PLACE, 0, 9))  # type: ignore[arg-type]
    assert [type(each) for each in found] == [Failure]
