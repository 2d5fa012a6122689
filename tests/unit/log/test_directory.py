"""A log directory: its small files byte for byte, its lock, its identity, the marker of a clean stop."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from moldau.base.uuids import text_of, uuid_of
from moldau.log import checkpoints
from moldau.log.checkpoints import MalformedCheckpointError
from moldau.log.directory import DirectoryFailed, DirectoryRefused, LogDirectory

CLUSTER = "Ka9zHpnTSTOrQmwWq_01Hg"


def open_directory(path: Path, cluster_id: str = CLUSTER, node_id: int = 1) -> LogDirectory:
    directory = LogDirectory.open(path)
    try:
        directory.ensure_owner(cluster_id, node_id)
    except DirectoryRefused:
        directory.close(clean=False)
        raise
    return directory


class TestCheckpoints:
    def test_offsets(self, tmp_path: Path) -> None:
        path = tmp_path / "recovery-point-offset-checkpoint"
        offsets = {("a.b-c", 0): 5, ("x_y", 12): 2**40}
        checkpoints.write_offsets(path, offsets)
        assert path.read_bytes() == b"0\n2\na.b-c 0 5\nx_y 12 1099511627776\n"
        assert checkpoints.read_offsets(path) == offsets
        assert os.listdir(tmp_path) == [path.name]

    def test_none(self, tmp_path: Path) -> None:
        assert checkpoints.read_offsets(tmp_path / "absent") == {}
        checkpoints.write_offsets(tmp_path / "empty", {})
        assert (tmp_path / "empty").read_bytes() == b"0\n0\n"
        (tmp_path / "new").touch()
        assert checkpoints.read_offsets(tmp_path / "new") == {}
        assert checkpoints.read_offsets(tmp_path / "empty") == {}

    @pytest.mark.parametrize(
        "content", [b"0\n", b"1\n0\n", b"x\n0\n", b"0\n2\na 0 5\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n"]
    )
    def test_malformed_ones_are_named(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(MalformedCheckpointError, match="bad"):
            checkpoints.read_offsets(tmp_path / "bad")

    def test_topic_id(self, tmp_path: Path) -> None:
        topic_id = uuid_of("7r9WQT-NTfy8yFkAekY7CA")
        checkpoints.write_topic_id(tmp_path, topic_id)
        assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: 7r9WQT-NTfy8yFkAekY7CA"
        assert checkpoints.read_topic_id(tmp_path) == topic_id
        assert text_of(topic_id) == "7r9WQT-NTfy8yFkAekY7CA"


class TestDirectory:
    def test_a_clean_stop_is_seen_once(self, tmp_path: Path) -> None:
        directory = open_directory(tmp_path / "data")
        assert not directory.clean
        directory.write_checkpoints({("t", 0): 3}, {("t", 0): 4}, {("t", 0): 1})
        directory.close(clean=True)
        again = open_directory(tmp_path / "data")
        assert again.clean
        assert (again.recovery_points, again.high_watermarks, again.log_starts) == (
            {("t", 0): 3},
            {("t", 0): 4},
            {("t", 0): 1},
        )
        assert again.directory_id == directory.directory_id
        again.close(clean=False)
        assert not open_directory(tmp_path / "data").clean

    def test_a_directory_of_apache_kafka(self, tmp_path: Path) -> None:
        (tmp_path / "meta.properties").write_text(
            "#\n#Sun Nov 15 21:37:50 UTC 2026\nnode.id=1\ndirectory.id=2elvUbc5IYfLZOflgvI9og\nversion=1\n"
            f"cluster.id={CLUSTER}\n"
        )
        (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":8}')
        for name in (
            "orders-0",
            "orders-11",
            "a-b-2",
            "__cluster_metadata-0",
            "gone-1.0f3a5b7c9d1e4f60818283848586878a-delete",
            "stray",
        ):
            (tmp_path / name).mkdir()
        directory = open_directory(tmp_path)
        assert directory.clean
        assert directory.directory_id == uuid_of("2elvUbc5IYfLZOflgvI9og")
        assert set(directory.partitions()) == {("orders", 0), ("orders", 11), ("a-b", 2)}
        assert [path.name for path in directory.pending_deletion()] == [
            "gone-1.0f3a5b7c9d1e4f60818283848586878a-delete"
        ]

    @pytest.mark.parametrize(
        ("cluster_id", "node_id", "told"), [("another", 1, f"cluster {CLUSTER}"), (CLUSTER, 2, "node.id=1")]
    )
    def test_of_somebody_else(self, tmp_path: Path, cluster_id: str, node_id: int, told: str) -> None:
        open_directory(tmp_path).close(clean=True)
        with pytest.raises(DirectoryRefused, match=told):
            open_directory(tmp_path, cluster_id, node_id)
        open_directory(tmp_path).close(clean=True)

    @pytest.mark.parametrize("content", ["nonsense", "0\n5\na 0 1\n", "\0" * 40])
    def test_a_broken_checkpoint_is_named_and_done_without(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
    ) -> None:
        open_directory(tmp_path).close(clean=True)
        (tmp_path / "recovery-point-offset-checkpoint").write_text(content)
        directory = open_directory(tmp_path)
        assert not directory.clean  # every log is checked from its beginning
        assert directory.recovery_points == {}
        assert "recovery-point-offset-checkpoint" in caplog.text
        directory.close(clean=True)
        assert not (tmp_path / ".kafka_cleanshutdown.tmp").exists()

    def test_a_broken_identity_is_refused_and_the_lock_let_go(self, tmp_path: Path) -> None:
        (tmp_path / "meta.properties").write_text("nonsense")
        for _ in range(2):
            with pytest.raises(DirectoryRefused, match=r"meta\.properties"):
                open_directory(tmp_path)

    @pytest.mark.parametrize(
        ("call", "name", "code", "failed"),
        [
            ("listdir", "", errno.EIO, True),
            ("open", ".lock", errno.EACCES, True),
            ("open", ".lock", errno.EROFS, True),
            ("open", "meta.properties", errno.EIO, True),
            ("open", "recovery-point-offset-checkpoint", errno.EIO, True),
            ("open", ".lock", errno.ENOSPC, False),
            ("open", "meta.properties", errno.EMFILE, False),
        ],
    )
    def test_a_disk_that_does_not_work_is_told_from_one_that_will_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, name: str, code: int, failed: bool
    ) -> None:
        open_directory(tmp_path / "it").close(clean=True)
        real = getattr(os, call)

        def fails(path: object, *rest: object, **named: object) -> object:
            if Path(str(path)) == tmp_path / "it" / name:
                raise OSError(code, os.strerror(code), str(path))
            return real(path, *rest, **named)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, fails)
            with pytest.raises(DirectoryRefused, match=os.strerror(code)) as refused:
                open_directory(tmp_path / "it")
        assert isinstance(refused.value, DirectoryFailed) is failed
        directory = open_directory(tmp_path / "it")
        assert directory.clean, "it was not touched"
        directory.close(clean=True)

    def test_a_file_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "it").touch()
        with pytest.raises(DirectoryFailed, match="it is a file"):
            LogDirectory.open(tmp_path / "it")
        failed = LogDirectory.failed(tmp_path / "it")
        assert failed.offline
        assert not failed.partitions()
        assert not failed.future_logs()
        assert failed.pending_deletion() == []
        with pytest.raises(DirectoryRefused, match="twice"):
            LogDirectory.failed(tmp_path / "it")
        failed.close(clean=False)
        LogDirectory.failed(tmp_path / "it").close(clean=False)

    def test_named_twice(self, tmp_path: Path) -> None:
        directory = open_directory(tmp_path)
        with pytest.raises(DirectoryRefused, match="twice"):
            LogDirectory.open(tmp_path)
        directory.close(clean=True)
        open_directory(tmp_path)

    def test_in_use_by_another_process(self, tmp_path: Path) -> None:
        script = (
            "import fcntl, sys; lock = open(sys.argv[1], 'w'); fcntl.lockf(lock, fcntl.LOCK_EX); "
            "print('locked', flush=True); sys.stdin.read()"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / ".lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryRefused, match="another broker"):
            open_directory(tmp_path)
        holder.communicate()
        directory = open_directory(tmp_path)
        assert isinstance(directory.directory_id, UUID)
