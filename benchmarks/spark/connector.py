"""Spark's own Kafka connector and the PySpark it belongs to: a venv and jars in the user's cache, set up once.

The newest versions with all jars on Maven Central.
"""

import fcntl
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks import jars

VERSION = "4.0.0"
ARTIFACT = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}"
DONE = "complete"  # written last
# Of half a gigabyte pip makes a wheel first, which it would compress, keep in a cache, and unpack.
STORED = "--config-settings=--build-option=--compression=stored"
INSTALL = ("install", "--quiet", "--no-cache-dir", "--no-compile", STORED)


@dataclass(frozen=True, slots=True)
class Connector:
    """The Python with that PySpark, and the jars for Spark."""

    python: Path
    jars: tuple[Path, ...]


def obtain() -> Connector | str:
    """The connector, set up if necessary; or a text with the reason why not."""
    directory = jars.download(f"spark-connector-{VERSION}", (ARTIFACT,))
    if isinstance(directory, str):
        return directory
    venv = directory / "venv"
    failure = _environment(directory, venv)
    if failure is not None:
        return failure
    present = {_artifact(jar) for jar in venv.glob("lib/python3*/site-packages/pyspark/jars/*.jar")}
    wanted = sorted(jar for jar in (directory / "libs").glob("*.jar") if _artifact(jar) not in present)
    return Connector(venv / "bin" / "python", tuple(wanted))


def _environment(directory: Path, venv: Path) -> str | None:
    """A venv with PySpark alone, made by one process at a time; the reason if that fails."""
    wanted = f"pyspark=={VERSION}"
    with (directory / "venv.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if (venv / DONE).exists():
            return None
        install = [str(venv / "bin" / "python"), "-m", "pip", *INSTALL, wanted]
        for command in ([sys.executable, "-m", "venv", "--clear", str(venv)], install):
            finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if finished.returncode:
                return f"no environment with {wanted}: {' '.join(finished.stdout.strip().splitlines()[-1:])}"
        (venv / DONE).touch()
    return None


def _artifact(jar: Path) -> str:
    """`kafka-clients` of `kafka-clients-3.9.0.jar`: what Spark has already, in any version, is not given again."""
    return re.sub(r"-\d[^-]*(-\d[^-]*)?\.jar$", "", jar.name)
