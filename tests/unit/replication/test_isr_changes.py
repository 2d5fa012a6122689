"""Asking the controller for another ISR: batched, one proposal at a time, and never trusting a lost answer."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from moldau.base.errors import WireError
from moldau.metadata.image import PartitionState
from moldau.net.peer import PeerLost
from moldau.replication.cluster_view import ClusterView
from moldau.replication.isr_changes import AT_ONCE, Granted, IsrChanges, Proposal
from moldau.replication.leader import Leader
from moldau.replication.partition import Partition
from support.log.logs import NOW, open_log
from support.net.loops import run, until

STATE = PartitionState(0, (1, 2, 3), (1, 2), 1, leader_epoch=4, partition_epoch=7)


class Asked:
    """A controller that answers as a test says."""

    def __init__(self, directory: Path, *answers: Granted | WireError | Exception) -> None:
        self.answers = list(answers)
        self.proposals: list[Proposal] = []
        self.changes = IsrChanges(self._alter, {1: 10, 2: 20, 3: 30}.get, 1)
        self.view = ClusterView(1, lambda: NOW, {1: 10, 2: 20, 3: 30}.get, self.changes.propose, 1000)
        self.partition = Partition("topic", 0, open_log(directory), 0)
        self.partition.assign(STATE, self.view, 0)
        self.changes.start()

    async def _alter(self, proposals: Sequence[Proposal]) -> Sequence[Granted | WireError]:
        self.proposals += proposals
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [answer for _ in proposals]

    @property
    def leader(self) -> Leader:
        assert isinstance(self.partition.role, Leader)
        return self.partition.role

    def propose(self) -> None:
        self.leader.fetched(3, 0, 0, 30)
        assert self.leader.pending_isr is not None


GRANTED = Granted((1, 2, 3), 1, 4, 8)


def test_a_proposal_names_epochs_and_becomes_true(tmp_path: Path) -> None:
    async def main() -> None:
        asked = Asked(tmp_path, GRANTED)
        asked.leader.fetched(2, 0, 0, 20)
        asked.propose()
        await until(lambda: asked.leader.pending_isr is None)
        assert asked.proposals == [Proposal(asked.partition.log.topic_id, 0, 4, 7, ((1, 10), (2, 20), (3, 30)))]
        assert asked.leader.isr.committed_isr == {1, 2, 3}
        await asked.changes.stop()

    run("asyncio", main())


def test_a_lost_answer_is_sent_again_unchanged_and_counts_until_then(tmp_path: Path) -> None:
    async def main() -> None:
        asked = Asked(tmp_path, PeerLost("gone"), WireError.INELIGIBLE_REPLICA, PeerLost("gone"), GRANTED)
        asked.propose()
        await until(lambda: len(asked.proposals) == 3)
        assert asked.leader.isr.maximal == {1, 2, 3}, "the first attempt may have been granted"
        await until(lambda: asked.leader.pending_isr is None)
        assert len(set(asked.proposals)) == 1
        await asked.changes.stop()

    run("asyncio", main())


def test_a_refusal_is_final_and_does_not_count_any_more(tmp_path: Path) -> None:
    async def main() -> None:
        asked = Asked(tmp_path, WireError.INELIGIBLE_REPLICA)
        asked.propose()
        await until(lambda: asked.leader.pending_isr is None)
        assert asked.leader.isr.maximal == {1, 2}
        await asked.changes.stop()

    run("asyncio", main())


def test_another_version_waits_for_the_image(tmp_path: Path) -> None:
    async def main() -> None:
        asked = Asked(tmp_path, *[WireError.INVALID_UPDATE_VERSION] * 50)
        asked.propose()
        await until(lambda: len(asked.proposals) > 1)
        assert asked.leader.isr.maximal == {1, 2, 3}
        asked.partition.assign(replace(STATE, isr=(1,), partition_epoch=8), asked.view)
        assert asked.leader.isr.committed_isr == {1}
        await until(lambda: asked.proposals[-1].partition_epoch == 8)
        assert asked.proposals[-1].isr == ((1, 10), (3, 30)), "it may still join, on top of what is true now"
        await asked.changes.stop()

    run("asyncio", main())


def test_an_answer_under_another_leader_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        asked = Asked(tmp_path, GRANTED)
        asked.propose()
        asked.partition.assign(replace(STATE, leader=2, leader_epoch=5, partition_epoch=8), asked.view)
        await asyncio.sleep(0.05)
        assert asked.proposals == []
        await asked.changes.stop()

    run("asyncio", main())


def test_proposals_behind_many_that_are_not_pending_any_more_are_sent_too(tmp_path: Path) -> None:
    async def main() -> None:
        asked = Asked(tmp_path, GRANTED)
        for _ in range(AT_ONCE):
            asked.changes.propose(Partition("other", 0, asked.partition.log, 0))
        asked.propose()
        await until(lambda: asked.leader.pending_isr is None)
        assert asked.leader.isr.committed_isr == {1, 2, 3}
        await asked.changes.stop()

    run("asyncio", main())
