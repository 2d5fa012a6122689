"""Apache Kafka's jars and tools, fetched once by Maven into the user's cache; the tests use them too.

The jars of Spark's connector come the same way (`spark.connector`).

The class path comes from MOLDAU_KAFKA_CLASSPATH, if that is set, else from the cache. Knows nothing of brokers or
measures.
"""

import fcntl
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

KAFKA_VERSION = "4.3.1"
ARTIFACTS = tuple(f"org.apache.kafka:{name}:{KAFKA_VERSION}" for name in ("kafka_2.13", "kafka-tools", "kafka-streams"))
OLDEST_JAVA = 17
DONE = "complete"  # written last, with the artifacts: an interrupted or different download is repeated


@dataclass(frozen=True, slots=True)
class Jars:
    """The class path of one Apache Kafka release, and the Java that runs it."""

    class_path: str
    java: str
    java_version: str

    def command(self, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        return [self.java, *options, "-cp", self.class_path, main_class, *arguments]

    @property
    def compiles(self) -> bool:
        """Whether it is a JDK, which can run a source file, and not only a JRE."""
        return shutil.which("javac", path=str(Path(self.java).resolve().parent)) is not None


def obtain() -> Jars | str:
    """The jars, downloaded if necessary; or a text with the reason why not, and how to get them."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    version = _java_version(java) if java else ""
    if java is None or int(version.partition(".")[0] or 0) < OLDEST_JAVA:
        return f"no java {OLDEST_JAVA} or later found; on Debian: apt-get install openjdk-17-jre-headless"
    given = os.environ.get("MOLDAU_KAFKA_CLASSPATH")
    if given:
        return Jars(given, java, version)
    directory = download(f"apache-kafka-{KAFKA_VERSION}", ARTIFACTS)
    if isinstance(directory, str):
        return f"{directory}, or set MOLDAU_KAFKA_CLASSPATH to the libs/* of a Kafka release"
    return Jars(f"{directory}/libs/*", java, version)


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau"


def download(name: str, artifacts: tuple[str, ...]) -> Path | str:
    """A folder with these artifacts (`group:name:version`) and their dependencies in `libs`; or why there is none.

    One process at a time fetches it.
    """
    directory, project = cache() / name, _project(artifacts)
    if _is_complete(directory, project):
        return directory
    maven = shutil.which("mvn")
    if maven is None:
        return f"no jars of {name}: install maven"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "download.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if _is_complete(directory, project):
            return directory
        (directory / "pom.xml").write_text(project)
        command = [maven, "--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=libs"]
        finished = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if finished.returncode:
            reason = next((line for line in finished.stdout.splitlines() if "ERROR" in line), "no reason given")
            return f"Maven could not fetch {name}: {reason}"
        (directory / DONE).write_text(project)
    return directory


def _is_complete(directory: Path, project: str) -> bool:
    done = directory / DONE
    return done.exists() and done.read_text() == project


def _project(artifacts: tuple[str, ...]) -> str:
    """A Maven project with nothing but dependencies."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in (each.split(":") for each in artifacts)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>moldau</groupId><artifactId>kafka-jars</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
    )


def _java_version(java: str) -> str:
    """The version, such as `17.0.15`; empty if unknown."""
    text = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "([^"]+)"', text)
    return found.group(1) if found else ""
