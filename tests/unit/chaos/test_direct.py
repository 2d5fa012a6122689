"""The producer that makes one attempt: what a leader answers is what is told, and what it proves."""

import re
from dataclasses import replace
from uuid import UUID

import pytest

from chaos.access import Access
from chaos.checker import check
from chaos.history import Acked, Event, Failed, Polled, Recorder, Send
from chaos.workloads.base import Setting
from chaos.workloads.direct import ANSWERS, Direct
from moldau.base.errors import WireError
from moldau.client.direct.connection import ConnectionLost
from moldau.client.direct.metadata import Topic
from moldau.wire.batch import read_header
from moldau.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from support.repository.sources import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text()
TOPIC = Topic("topic", UUID(int=1), False, {})
OFFSET = 7


class Leader:
    """Says one thing to all that it is asked."""

    address = "broker:9092"

    def __init__(self, said: int | Exception, message: str | None = None) -> None:
        self.said, self.message = said, message
        self.asked: list[ProduceRequest] = []

    def ask(self, request: ProduceRequest, _answer: type) -> ProduceResponse:
        self.asked.append(request)
        if isinstance(self.said, Exception):
            raise self.said
        offset = -1 if self.said else OFFSET
        row = PartitionProduceResponse(index=2, error_code=self.said, base_offset=offset, error_message=self.message)
        return ProduceResponse(responses=(TopicProduceResponse(topic_id=TOPIC.topic_id, partition_responses=(row,)),))


def told(leader: Leader) -> list[Event]:
    """What becomes of a batch of two records."""
    recorder = Recorder(clock=lambda: 0.0)
    Direct("direct", Setting(Access(""), recorder, "topic", 3, 1.0, 1))._sent(leader, TOPIC, 2, many=2)
    return recorder.events


def failure(leader: Leader) -> Failed:
    """The same of both records."""
    _, _, first, second = told(leader)
    assert isinstance(first, Failed)
    assert second == replace(first, value="direct.1")
    return first


def test_an_acknowledged_batch_is_sent_once_to_all_replicas() -> None:
    leader = Leader(WireError.NONE)
    assert told(leader) == [
        Send(0.0, "direct", "topic/2", "direct.0"),
        Send(0.0, "direct", "topic/2", "direct.1"),
        Acked(0.0, "direct", "topic/2", "direct.0", OFFSET),
        Acked(0.0, "direct", "topic/2", "direct.1", OFFSET + 1),
    ]
    [request] = leader.asked
    assert request.acks == -1
    [data] = request.topic_data[0].partition_data
    assert data.index == 2
    assert read_header(data.records).producer_id == -1


@pytest.mark.parametrize("code", [*ANSWERS, 4711])
def test_an_error_is_told_as_it_was_answered_and_nothing_is_tried_again(code: int) -> None:
    leader = Leader(code, "so it is")
    failed = failure(leader)
    name = WireError(code).name if code in ANSWERS else "error 4711"
    assert failed.error == f"so it is ({name})"
    assert failed.surely == (code in ANSWERS and ANSWERS[code][0])
    assert len(leader.asked) == 1


@pytest.mark.parametrize("lost", [ConnectionLost("gone"), TimeoutError("timed out")])
def test_a_lost_connection_leaves_a_batch_open(lost: Exception) -> None:
    leader = Leader(lost)
    failed = failure(leader)
    assert not failed.surely
    assert not failed.hard
    assert len(leader.asked) == 1


def test_too_few_replicas_before_the_append_is_certain_and_after_it_is_not() -> None:
    seen = Polled(1.0, "reader", "topic/2", ((OFFSET, "direct.0"),))
    refused = told(Leader(WireError.NOT_ENOUGH_REPLICAS))
    assert check(refused) == []
    assert [each.kind for each in check([*refused, seen])] == ["aborted read"]
    for code in (WireError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, WireError.NOT_LEADER_OR_FOLLOWER):
        assert check([*told(Leader(code)), seen]) == []


def test_the_page_says_the_same_of_every_answer() -> None:
    rows = re.findall(r"^\| ([A-Za-z_, ]+) \| (is absent|may be present) \|", PAGE, re.MULTILINE)
    said = {name: what == "is absent" for names, what in rows for name in names.split(", ") if name.isupper()}
    assert said == {WireError(code).name: surely for code, (surely, _) in ANSWERS.items()}
