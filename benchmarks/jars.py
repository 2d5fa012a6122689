"""Apache Kafka's jars and tools, fetched once by Maven into the user's cache. Knows nothing of brokers or measures."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

KAFKA_VERSION = "4.3.1"
ARTIFACTS = ("kafka_2.13", "kafka-tools")
DONE = "complete"  # this file is written last, so that an interrupted download is started again


@dataclass(frozen=True, slots=True)
class Jars:
    """The class path of one Apache Kafka release, and the Java that runs it."""

    directory: Path
    java: str
    java_version: str

    def command(self, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        return [self.java, *options, "-cp", f"{self.directory}/*", main_class, *arguments]


def obtain() -> Jars | str:
    """The jars, downloaded where necessary; or, in words, why there are none."""
    java, maven = shutil.which("java"), shutil.which("mvn")
    if java is None:
        return "there is no `java` on this machine"
    directory = _cache() / f"apache-kafka-{KAFKA_VERSION}"
    if not (directory / DONE).exists():
        if maven is None:
            return "there is no `mvn` on this machine to fetch Apache Kafka with"
        failure = _download(maven, directory)
        if failure is not None:
            return failure
    return Jars(directory / "libs", java, _java_version(java))


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau"


def _download(maven: str, directory: Path) -> str | None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "pom.xml").write_text(_project())
    command = [maven, "--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=libs"]
    finished = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if finished.returncode:
        reason = next((line for line in finished.stdout.splitlines() if "ERROR" in line), "no reason given")
        return f"Maven could not fetch Apache Kafka {KAFKA_VERSION}: {reason}"
    (directory / DONE).touch()
    return None


def _project() -> str:
    dependencies = "".join(
        f"<dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{KAFKA_VERSION}</version></dependency>"
        for artifact in ARTIFACTS
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>moldau</groupId><artifactId>benchmarks</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
    )


def _java_version(java: str) -> str:
    text = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "([^"]+)"', text)
    return found.group(1) if found else "unknown"
