"""The reserve of a full disk: parts that are given back, and taken again once there is room."""

import errno
from pathlib import Path

import pytest

from moldau.log.reserve import DiskReserve

SIZE = 64 * 1024
PART = SIZE // 8


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_a_reserve_takes_up_room_and_gives_it_back_part_by_part(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    reserve = DiskReserve(path, SIZE)
    assert not reserve.release(), "it was not filled yet"
    reserve.fill()
    assert blocks(path) == SIZE
    for left in range(7, -1, -1):
        assert reserve.release()
        assert blocks(path) == left * PART
    assert not reserve.release()
    reserve.fill()
    assert blocks(path) == SIZE


def test_a_reserve_finds_what_an_earlier_run_left_of_it(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    path.write_bytes(bytes(3 * PART + 5))
    reserve = DiskReserve(path, SIZE)
    reserve.fill()
    assert blocks(path) == SIZE


def test_without_room_there_is_no_reserve_and_no_error(tmp_path: Path) -> None:
    reserve = DiskReserve(tmp_path / "missing" / "reserve", SIZE)
    reserve.fill()
    assert not reserve.release()


@pytest.mark.parametrize("failures", range(9))
def test_a_write_is_tried_again_with_each_part(tmp_path: Path, failures: int) -> None:
    path = tmp_path / "reserve"
    reserve = DiskReserve(path, SIZE)
    reserve.fill()
    sizes: list[int] = []

    def write() -> None:
        sizes.append(path.stat().st_size)
        if len(sizes) <= failures:
            raise OSError(errno.ENOSPC, "No space left on device")

    reserve.use(write)
    assert sizes == [SIZE - PART * number for number in range(failures + 1)]
    assert path.stat().st_size == SIZE, "there is room again"


def test_an_empty_reserve_and_other_errors_are_told(tmp_path: Path) -> None:
    def fails(code: int) -> None:
        raise OSError(code, "it fails")

    reserve = DiskReserve(tmp_path / "reserve", SIZE)
    reserve.fill()
    with pytest.raises(OSError, match="it fails"):
        reserve.use(lambda: fails(errno.ENOSPC))
    with pytest.raises(OSError, match="it fails"):
        reserve.use(lambda: fails(errno.EIO))
    assert (tmp_path / "reserve").stat().st_size == SIZE
