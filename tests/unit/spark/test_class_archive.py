"""Class data sharing of Spark's JVM: who writes the archive, and who uses it. Needs neither Java nor Spark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.spark.class_archive import ClassArchive, manages_sharing
from moldau.spark.java import Java

WRITES_AND_ENDS = "import sys, pathlib; sys.stdin.read(); pathlib.Path(sys.argv[1]).write_text('classes')"
FAILS = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('half'); sys.exit(1)"


@pytest.fixture
def archive(tmp_path: Path) -> ClassArchive:
    java, jars = tmp_path / "java", tmp_path / "jars"
    (java / "lib" / "server").mkdir(parents=True)
    (java / "lib" / "server" / "classes.jsa").touch()
    jars.mkdir()
    found = ClassArchive.of(Java(java, 17, "PATH"), jars, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert found is not None
    return found


def jvm(archive: ClassArchive, program: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", program, str(archive.unfinished)], stdin=subprocess.PIPE)


def test_the_first_jvm_writes_it_and_the_next_one_uses_it(archive: ClassArchive) -> None:
    assert archive.options()[0] == f"-XX:ArchiveClassesAtExit={archive.unfinished}"
    archive.finish(jvm(archive, WRITES_AND_ENDS))
    assert archive.path.read_text() == "classes"
    assert archive.options()[0] == f"-XX:SharedArchiveFile={archive.path}"
    assert list(archive.path.parent.iterdir()) == [archive.path]


def test_one_process_writes_it(archive: ClassArchive) -> None:
    archive.path.parent.mkdir(parents=True)
    archive.claim.write_text(str(os.getppid()))
    assert archive.options() == ()


def test_the_claim_of_a_process_that_is_gone_does_not_count(archive: ClassArchive) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    archive.path.parent.mkdir(parents=True)
    archive.claim.write_text(str(gone.pid))
    assert archive.options()[0].startswith("-XX:ArchiveClassesAtExit=")


def test_what_a_failing_jvm_leaves_is_removed(archive: ClassArchive) -> None:
    archive.options()
    archive.finish(jvm(archive, FAILS))
    assert list(archive.path.parent.iterdir()) == []


def test_archives_that_nobody_has_used_for_long_are_removed(archive: ClassArchive) -> None:
    archive.options()
    old = archive.path.with_name("spark-0123456789abcdef.jsa")
    old.touch()
    os.utime(old, (0, 0))
    archive.finish(jvm(archive, WRITES_AND_ENDS))
    assert list(archive.path.parent.iterdir()) == [archive.path]


def test_without_a_place_for_it_there_is_none(archive: ClassArchive) -> None:
    archive.path.parent.parent.touch()  # a file where the directory belongs
    assert archive.options() == ()


def test_other_jars_have_another(archive: ClassArchive, tmp_path: Path) -> None:
    (tmp_path / "jars" / "new.jar").touch()
    java = Java(tmp_path / "java", 17, "PATH")
    other = ClassArchive.of(java, tmp_path / "jars", {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert other is not None
    assert other.path != archive.path


def test_a_java_without_its_own_archive(tmp_path: Path) -> None:
    assert ClassArchive.of(Java(tmp_path, 17, "PATH"), tmp_path) is None


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (["-Xmx1g -Xshare:off"], {}),
        (["-XX:SharedArchiveFile=/my.jsa"], {}),
        ([""], {"JDK_JAVA_OPTIONS": "-XX:ArchiveClassesAtExit=/my.jsa"}),
    ],
)
def test_options_of_the_user_win(options: list[str], environment: dict[str, str]) -> None:
    assert manages_sharing(options, environment)
    assert not manages_sharing(["-Xmx1g"], {"PATH": "/bin"})
