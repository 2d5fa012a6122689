"""Spark's own Kafka connector, to try it on our broker: jars from Maven, and a PySpark that fits, in the user's cache.

The newest pair that resolves completely from Maven Central. Half a gigabyte, fetched once.
"""

import subprocess
import sys
import venv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks import jars

VERSION = "4.0.0"
ARTIFACT = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}"


@dataclass(frozen=True, slots=True)
class Connector:
    """A Python with PySpark, and the jars to give to it."""

    python: str
    jars: str


@cache
def find() -> Connector | str:
    """The connector, or what is missing with the way to get it."""
    if sys.version_info >= (3, 14):
        return f"PySpark {VERSION} runs on Python 3.13 at most"
    java = jars.obtain()
    if isinstance(java, str):
        return java
    directory = jars.download(f"spark-connector-{VERSION}", [ARTIFACT])
    if isinstance(directory, str):
        return directory
    home = directory / f"python{sys.version_info.major}.{sys.version_info.minor}"
    failure = _install(home)
    return failure or Connector(str(home / "bin" / "python"), ",".join(map(str, sorted(_needed(directory)))))


def _needed(directory: Path) -> list[Path]:
    """Without what PySpark itself brings in a version of its own."""
    brought = ("hadoop-", "scala-", "slf4j-", "spark-tags")
    return [jar for jar in (directory / "libs").glob("*.jar") if not jar.name.startswith(brought)]


def _install(home: Path) -> str | None:
    ready = home / "ready"
    if ready.exists():
        return None
    venv.create(home, with_pip=True, clear=True)
    command = [home / "bin" / "python", "-m", "pip", "install", "--quiet", f"pyspark=={VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"pip could not install PySpark {VERSION}: {done.stderr.strip().splitlines()[-1]}"
    ready.touch()
    return None
