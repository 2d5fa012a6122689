"""What a log knows of its batches, found again from them: leader epochs, producers' state, aborted transactions.

Works on what it is given and writes no batches; `Log` says when.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from moldau.log import checkpoints
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import remove, replace
from moldau.log.producers import Producers
from moldau.log.replay import aborted_of, replay, written_before
from moldau.log.segment import NEVER, TXN_INDEX, Segment
from moldau.log.segments import Segments
from moldau.log.snapshots import Snapshots
from moldau.wire.batch import BatchHeader

logger = logging.getLogger("moldau.log")

REFILL_OFFSETS = 50_000  # how far back the batches of a producer are looked for that a snapshot does not hold


def read_epochs(directory: str, name: str) -> LeaderEpochs:
    """The leader epochs as the checkpoint has them; none where it is missing or damaged: the batches know them."""
    try:
        return LeaderEpochs(checkpoints.read_epochs(f"{directory}/{checkpoints.LEADER_EPOCHS}"))
    except checkpoints.MalformedCheckpointError as fault:
        logger.warning("%s: reading the leader epochs from the batches: %s", name, fault)
        return LeaderEpochs()


def epochs_of(headers: Iterable[BatchHeader], start: int) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for header in headers:
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, max(header.base_offset, start))
    return epochs


def rebuild_producers(
    producers: Producers,
    segments: Segments,
    snapshots: Snapshots,
    bounds: tuple[int, int],
    now: int,
    unindexed_from: int = NEVER,
) -> list[Path]:
    """State as of the log's end: the newest usable snapshot, and the batches behind it.

    Segments from `unindexed_from` on also get their aborted transactions back, so older snapshots are to be used.
    """
    start, end = bounds
    removed = snapshots.tidy(segments.bases, end)
    replay_from, broken = snapshots.load(producers, start, now, unindexed_from)
    if replay_from < end:
        for segment, aborted in replay(producers, segments.headers(replay_from), replay_from):
            if segment.base >= unindexed_from:
                segment.add_aborted(aborted)
    if unindexed_from != NEVER:
        segments.replace(segments.each)
    return removed + broken


def rebuild_aborted(segment: Segment, segments: Segments, snapshots: Snapshots, start: int, fault: object) -> bytes:
    """Finds the aborted transactions of a finished segment again, from the batches, and writes their file anew."""
    producers = Producers()
    begin, broken = snapshots.load(producers, start, 0, segment.base)
    remove(broken)
    found = aborted_of(segment, producers, segments.headers(begin), begin)
    logger.warning("rebuilt the transaction index of %s: %s", segment.stem, fault)
    entries = b"".join(aborted.pack() for aborted in found)
    replace(segment.stem + TXN_INDEX, entries)
    if not entries:
        remove([Path(segment.stem + TXN_INDEX)])
        segment.aborts = False
        segments.replace(segments.each)
    return entries


def refill(producers: Producers, segments: Segments, producer_id: int, start: int) -> None:
    """After a restart a producer may retry any of its five requests in flight; a snapshot knows the last one."""
    state = producers.get(producer_id)
    assert state is not None
    end = state.batches[0].base_offset if state.batches else start
    batches = segments.headers(max(start, end - REFILL_OFFSETS))
    producers.refill(producer_id, written_before(state, batches, end))
