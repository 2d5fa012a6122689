"""A broker whose disk failed says so to the controller: nobody waits for it, and another leads in its place."""

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from moldau.base.errors import WireError
from moldau.log.directory import LogDirectory
from moldau.log.log import Log
from moldau.log.settings import LogConfig
from moldau.metadata.image import Broker, ClusterImage, PartitionState, Topic
from moldau.net.peer import PeerLost
from moldau.replication.isr_changes import Granted, Proposal
from moldau.replication.offline_replicas import OfflineReplicaReporter
from moldau.replication.owners import NoOwner
from moldau.replication.replicas import Replicas
from support.log.logs import NOW
from support.net.loops import run, turns, until

HERE = 1
TOPIC_ID = UUID(int=7)
FOLLOWED = PartitionState(0, (2, 1, 3), (2, 1), 2, leader_epoch=4, partition_epoch=7)
LED = replace(FOLLOWED, leader=HERE)
EIO, ENOSPC = (OSError(code, "the disk says no") for code in (errno.EIO, errno.ENOSPC))


def image_of(state: PartitionState, *brokers: int) -> ClusterImage:
    registered = {each: Broker(each, {}, epoch=each * 10) for each in brokers or (1, 2, 3)}
    return ClusterImage(brokers=registered, topics={"t": Topic("t", TOPIC_ID, (state,), {})})


class Here:
    """A broker with one directory, and a controller that answers as a test says, and then not at all."""

    def __init__(self, directory: Path, *answers: object, start: ClusterImage | None = None) -> None:
        self.image = start or ClusterImage()
        self.directory = LogDirectory.open(directory)
        self.replicas = Replicas(HERE, [self.directory], lambda _: LogConfig(), lambda: NOW, 10**9)
        self.replicas.load(self.image, 1, lambda: False)
        self.asked: list[Proposal] = []
        self._answers = list(answers)
        self.withdrawals = OfflineReplicaReporter(self._alter, self.replicas, lambda: self.image, HERE)
        self.replicas.owner = owner = NoOwner()
        owner.went_offline = self.withdrawals.look  # type: ignore[method-assign]
        self.withdrawals.start()

    async def _alter(self, proposals: Sequence[Proposal]) -> Sequence[Granted | WireError]:
        self.asked += proposals
        answer: Any = self._answers.pop(0) if self._answers else await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return [answer for _ in proposals]

    def learn(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
        self.replicas.follow(old, image)
        self.withdrawals.look()

    async def stop(self) -> None:
        await self.withdrawals.stop()
        await self.replicas.stop()


def unable(problem: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Log:
        raise problem

    monkeypatch.setattr(Log, "open", fails)


def test_a_follower_whose_directory_fails_asks_to_be_left_out(tmp_path: Path) -> None:
    async def main() -> None:
        here = Here(tmp_path, start=image_of(FOLLOWED))
        await turns()
        assert not here.asked, "nothing is wrong"
        here.replicas.fail(here.directory, EIO)
        await until(lambda: here.asked)
        assert here.asked == [Proposal(TOPIC_ID, 0, 4, 7, ((2, -1),))]
        await here.stop()

    run("asyncio", main())


def test_it_asks_until_the_image_agrees_and_again_if_it_is_let_in_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.getMessage().startswith("Asking the controller")]

    async def main() -> None:
        answers = [PeerLost("gone"), WireError.INVALID_UPDATE_VERSION, RuntimeError("a bug"), Granted((2,), 2, 4, 8)]
        here = Here(tmp_path, *answers, start=image_of(FOLLOWED))
        here.replicas.fail(here.directory, EIO)
        await until(lambda: len(here.asked) == 4)
        assert lines() == [
            "Asking the controller to remove this broker from the ISR of 1 partitions whose logs are offline here; "
            "see the errors above, repair the disk and restart."
        ], "once, not with every retry"
        here.learn(image_of(replace(FOLLOWED, isr=(2,), partition_epoch=8)))
        await asyncio.sleep(0.1)
        assert len(here.asked) == 4
        here.learn(image_of(replace(FOLLOWED, partition_epoch=9)))  # a fetch was under way when the disk failed
        await until(lambda: len(here.asked) == 5)
        assert here.asked[-1].partition_epoch == 9
        assert len(lines()) == 2
        await here.stop()

    run("asyncio", main())


@pytest.mark.parametrize("problem", [EIO, ENOSPC])
def test_who_is_to_lead_and_cannot_make_a_log_resigns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: OSError
) -> None:
    unable(problem, monkeypatch)

    async def main() -> None:
        here = Here(tmp_path)
        here.learn(image_of(replace(LED, isr=(2, 1, 3))))
        await until(lambda: here.asked)
        assert here.asked == [Proposal(TOPIC_ID, 0, 4, 7, ((2, -1), (3, -1)))]
        await here.stop()

    run("asyncio", main())


def test_who_is_elected_later_without_a_log_resigns_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unable(EIO, monkeypatch)

    async def main() -> None:
        here = Here(tmp_path)
        here.learn(image_of(replace(FOLLOWED, isr=(2,))))
        await here.replicas.settled()
        await turns()
        assert not here.asked, "nobody counts on it"
        here.learn(image_of(replace(LED, isr=(1,), leader_epoch=5, partition_epoch=8)))  # somebody accepts a loss
        await until(lambda: here.asked)
        assert here.asked == [Proposal(TOPIC_ID, 0, 5, 8, ())]
        await here.stop()

    run("asyncio", main())


def test_the_last_one_that_waits_for_room_goes_on_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unable(ENOSPC, monkeypatch)

    async def main() -> None:
        here = Here(tmp_path)
        here.learn(image_of(LED, 1, 3))  # broker 2 is not there
        await here.replicas.settled()
        assert here.replicas.offline
        await turns()
        assert not here.asked
        monkeypatch.undo()
        here.replicas.reopen()
        await here.replicas.settled()
        partition = here.replicas.get("t", 0)
        assert partition is not None
        assert partition.leads
        await here.stop()

    run("asyncio", main())


def test_a_leader_that_resigns_as_such_is_not_asked_for_twice(tmp_path: Path) -> None:
    async def main() -> None:
        here = Here(tmp_path, start=image_of(LED))
        here.replicas.fail(here.directory, EIO)
        await turns()
        assert not here.asked
        await here.stop()

    run("asyncio", main())


def test_who_is_not_registered_says_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        here = Here(tmp_path, start=image_of(FOLLOWED, 2, 3))
        here.replicas.fail(here.directory, EIO)
        await turns()
        assert not here.asked
        here.learn(image_of(FOLLOWED))
        await until(lambda: here.asked)
        await here.stop()

    run("asyncio", main())
