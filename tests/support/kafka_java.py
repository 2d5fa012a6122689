"""Kafka's own Java classes for the tests: where java and the jars are, how to run a tool. Starts no broker.

The jars come from, in this order: the class path in MOLDAU_KAFKA_CLASSPATH; the user's cache directory; Maven Central
by way of `mvn`, once, into that cache.
"""

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

VERSION = "4.3.1"
ARTIFACTS = ("kafka_2.13", "kafka-tools")
OLDEST_JAVA = 17
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / f"apache-kafka-{VERSION}"


def java() -> str | None:
    """The java command of JAVA_HOME or of the path, if it is new enough for Kafka."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None or java_version(found) < OLDEST_JAVA:
        return None
    return found


@cache
def java_version(command: str) -> int:
    """17 for `openjdk version "17.0.15"`; 0 if it cannot be told."""
    told = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
    quoted = told.split('"')
    major = quoted[1].split(".")[0] if len(quoted) > 1 else ""
    return int(major) if major.isdigit() else 0


def pom() -> str:
    """A Maven project whose only purpose is its dependencies."""
    dependencies = "".join(
        f"<dependency><groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId><version>{VERSION}</version></dependency>"
        for name in ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>moldau</groupId><artifactId>kafka-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def download(directory: Path, mvn: str) -> str | None:
    """Fetch the jars into `directory`/libs, one process at a time; the reason if that fails."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "download.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if (directory / "ready").exists():
            return None
        (directory / "pom.xml").write_text(pom())
        done = subprocess.run(
            [mvn, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return f"mvn could not download Kafka {VERSION}: {(done.stdout + done.stderr).strip()[-300:]}"
        (directory / "ready").touch()
        return None


@cache
def find() -> tuple[str | None, str]:
    """The class path, or None and what is missing with the way to get it."""
    if java() is None:
        return (
            None,
            f"no java {OLDEST_JAVA} or later found; on Debian: apt-get install openjdk-17-jre-headless",
        )
    given = os.environ.get("MOLDAU_KAFKA_CLASSPATH")
    if given:
        return given, ""
    if not (CACHE / "ready").exists():
        mvn = shutil.which("mvn")
        if mvn is None:
            return None, "no Kafka jars: install maven, or set MOLDAU_KAFKA_CLASSPATH to the libs/* of a Kafka release"
        failure = download(CACHE, mvn)
        if failure:
            return None, failure
    return str(CACHE / "libs" / "*"), ""


def classpath() -> str | None:
    """The class path of Kafka's tools and broker, or None where they cannot be had."""
    return find()[0]


def why_missing() -> str:
    """One line for a skipped test."""
    return find()[1]


def run(tool: str, *arguments: str, stdin: str | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools to its end; the caller judges the exit code."""
    path, command = classpath(), java()
    assert path is not None, why_missing()
    assert command is not None
    return subprocess.run(
        [command, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path, tool, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
