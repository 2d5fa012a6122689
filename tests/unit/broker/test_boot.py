"""Whether a broker may be believed when it comes back."""

import os
from pathlib import Path

import pytest

from moldau.broker.cluster.boot import boot_id, note, trusted
from moldau.log.directory import LogDirectory


def test_this_machine_tells_its_boot() -> None:
    assert boot_id()
    assert boot_id() == boot_id()


def test_a_killed_process_is_believed_and_a_machine_that_went_down_is_not(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path)
    assert not trusted([directory], "boot 1"), "a new directory has nothing of what a broker may have had"
    note([directory], "boot 1\n")
    directory.close(clean=False)

    directory = LogDirectory.open(tmp_path)
    assert trusted([directory], "boot 1\n")
    assert not trusted([directory], "boot 2")
    assert not trusted([directory], "")
    directory.close(clean=True)

    directory = LogDirectory.open(tmp_path)
    assert trusted([directory], "boot 2"), "stopped in order: all was synced"
    directory.close(clean=False)


def test_a_failed_directory_is_skipped_and_a_full_disk_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failed").touch()
    directories = [LogDirectory.open(tmp_path / "works"), LogDirectory.failed(tmp_path / "failed")]
    note(directories, "boot 1")
    assert trusted(directories, "boot 1")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        note(directories, "boot 2")
    assert not trusted(directories, "boot 2"), "nothing is believed because of it"
    for directory in directories:
        directory.close(clean=False)
