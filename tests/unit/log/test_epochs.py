"""Leader epochs: assigning, cutting at either end, and where an epoch ended."""

import pytest

from moldau.log.epochs import LeaderEpochs


@pytest.fixture
def epochs() -> LeaderEpochs:
    return LeaderEpochs([(2, 10), (4, 20), (7, 30)])


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),  # before all that is left
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, 30)),
        (6, (4, 30)),
        (7, (7, 45)),
        (8, (-1, -1)),
    ],
)
def test_end_of_an_epoch(epochs: LeaderEpochs, asked: int, answer: tuple[int, int]) -> None:
    assert epochs.end_offset_for(asked, 45) == answer


def test_epoch_of_an_offset(epochs: LeaderEpochs) -> None:
    assert [epochs.epoch_of(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 4, 7]


def test_a_repeated_epoch_changes_nothing(epochs: LeaderEpochs) -> None:
    epochs.assign(7, 40)
    assert not epochs.changed
    assert epochs.latest == 7


def test_contradicting_entries_go(epochs: LeaderEpochs) -> None:
    epochs.assign(5, 25)
    assert epochs.entries() == [(2, 10), (4, 20), (5, 25)]
    epochs.assign(9, 20)
    assert epochs.entries() == [(2, 10), (9, 20)]
    assert epochs.changed


def test_cutting_the_end(epochs: LeaderEpochs) -> None:
    epochs.cut_end(20)
    assert epochs.entries() == [(2, 10)]
    epochs.cut_end(0)
    assert (epochs.entries(), epochs.latest) == ([], -1)


@pytest.mark.parametrize(
    ("start", "left"),
    [(5, [(2, 10), (4, 20), (7, 30)]), (15, [(2, 15), (4, 20), (7, 30)]), (20, [(4, 20), (7, 30)]), (99, [(7, 99)])],
)
def test_cutting_the_start(epochs: LeaderEpochs, start: int, left: list[tuple[int, int]]) -> None:
    epochs.cut_start(start)
    assert epochs.entries() == left
