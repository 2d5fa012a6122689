"""Requests about transactions that wait for other brokers: late answers, and partitions that take long."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.base.later import Later
from moldau.broker.apis import write_txn_markers as markers_api
from moldau.broker.apis.txn_offset_commit import txn_offset_commit
from moldau.broker.apis.write_txn_markers import write_txn_markers
from moldau.broker.call import Call
from moldau.broker.waiting import awaited
from moldau.groups.environment import Topics, TopicView
from moldau.log.settings import LogConfig
from moldau.replication.appender import Appended
from moldau.replication.partition import Partition
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from support.brokers.calls import a_call
from support.log.logs import NOW, open_log

CALL = a_call(5)
COMMITTED = "committed"


class Shop:
    """A group coordinator with a transaction coordinator on another broker."""

    def __init__(self, directory: Path) -> None:
        self.partition = Partition("__consumer_offsets", 0, open_log(directory, LogConfig()), 0)
        self.answer: Later[Any] = Later()
        self.asked: list[tuple[int, bool]] = []
        self.config = SimpleNamespace(transaction_partition_verification_enable=True)
        self.groups = self.transactions = self
        view = TopicView(UUID(int=1), "orders", 1)
        self.topics = Topics(1, {"orders": view}, {view.id: view})

    def now(self) -> int:
        return NOW

    def env(self) -> SimpleNamespace:
        return SimpleNamespace(topics=self.topics)

    def partition_of(self, group_id: str) -> int:
        return 0

    def shard_at(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(partition=self.partition)

    def add_or_verify(
        self, name: str, producer_id: int, epoch: int, partitions: list[tuple[str, int]], adds: bool
    ) -> Later[Any]:
        self.asked.append((producer_id, adds))
        return self.answer

    def ask(self, group_id: str, request: Any, call: Call, refused: Callable[[WireError], Any]) -> str:
        outcome = self.partition.appender.append_records(
            [(b"k", b"v")], NOW, request.producer_id, request.producer_epoch, True
        )
        assert isinstance(outcome, Appended)
        return COMMITTED

    def says(self, error: WireError) -> None:
        self.answer.resolve({("__consumer_offsets", 0): error})


def commit(shop: Shop, version: int = 4) -> Any:
    place = TxnOffsetCommitPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="group",
        producer_id=7,
        producer_epoch=0,
        topics=(TxnOffsetCommitTopic(name="orders", partitions=(place,)),),
    )
    return txn_offset_commit(shop, request, a_call(version))  # type: ignore[arg-type]


def error_of(response: Any) -> WireError:
    return WireError(response.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", [4, 5])
def test_offsets_wait_until_the_coordinator_of_the_transaction_has_answered(tmp_path: Path, version: int) -> None:
    shop = Shop(tmp_path)
    first = commit(shop, version)
    assert isinstance(first, Later)
    assert shop.partition.log.end_offset == 0
    shop.says(WireError.NONE)
    assert first.result == COMMITTED
    assert commit(shop, version) == COMMITTED, "the transaction is open here: no verification is needed"
    assert shop.asked == [(7, version == 5)]


def test_offsets_of_a_transaction_that_has_ended_meanwhile_are_refused(tmp_path: Path) -> None:
    """They would be pending for ever: no marker would end their transaction."""
    shop = Shop(tmp_path)
    late = commit(shop)
    shop.partition.appender.write_marker(7, 0, False, 0, 1, NOW)
    shop.says(WireError.NONE)
    assert error_of(late.result) is WireError.INVALID_TXN_STATE
    assert shop.partition.log.end_offset == 1


def test_offsets_may_wait_for_the_last_transaction_to_end(tmp_path: Path) -> None:
    """Transaction version 2: its marker comes to the same partition, and has the epoch of the next transaction."""
    shop = Shop(tmp_path)
    waiting = commit(shop, 5)
    shop.partition.appender.write_marker(7, 0, True, 0, 2, NOW)
    shop.says(WireError.NONE)
    assert waiting.result == COMMITTED


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (WireError.NETWORK_EXCEPTION, WireError.COORDINATOR_LOAD_IN_PROGRESS),
        (WireError.PRODUCER_FENCED, WireError.INVALID_PRODUCER_EPOCH),
        (WireError.TRANSACTION_ABORTABLE, WireError.TRANSACTION_ABORTABLE),
    ],
)
def test_what_the_coordinator_refuses_the_group_refuses(tmp_path: Path, said: WireError, told: WireError) -> None:
    shop = Shop(tmp_path)
    answer = commit(shop)
    shop.says(said)
    assert error_of(answer.result) is told
    assert shop.partition.log.end_offset == 0


def test_markers_that_take_long_do_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers_api, "TIMEOUT_MS", 20)
    waiting: dict[int, Callable[[WireError], None]] = {}

    def write(partition: TopicPartition, marker: object, done: Callable[[WireError], None]) -> None:
        waiting[partition.partition] = done

    ctx: Any = SimpleNamespace(transactions=SimpleNamespace(markers=SimpleNamespace(write=write)))
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=True,
        topics=(WritableTxnMarkerTopic(name="orders", partition_indexes=(0, 1, 2)),),
        coordinator_epoch=3,
    )

    async def main() -> WriteTxnMarkersResponse:
        answer = write_txn_markers(ctx, WriteTxnMarkersRequest(markers=(marker,)), CALL)
        waiting[0](WireError.NONE)
        waiting[2](WireError.NOT_LEADER_OR_FOLLOWER)
        response: WriteTxnMarkersResponse = await awaited(answer)
        waiting[1](WireError.NONE)  # too late
        return response

    rows = asyncio.run(main()).markers[0].topics[0].partitions
    assert [WireError(row.error_code) for row in rows] == [
        WireError.NONE,
        WireError.REQUEST_TIMED_OUT,
        WireError.NOT_LEADER_OR_FOLLOWER,
    ]
