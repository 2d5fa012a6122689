"""Class data sharing for the Spark JVMs of tests: an archive of loaded classes, made once and kept in the user's cache.

A short Spark JVM spends half of its CPU on loading and verifying some 10,000 classes. A dynamic archive (Java 13+,
`-XX:ArchiveClassesAtExit`) holds them ready to be mapped. A JVM with another Java or another class path ignores it.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from moldau.spark.java import Java, find_java

TRAINING = Path(__file__).with_name("training.py")
TIMEOUT_S = 600
QUIET = "-Xlog:disable"  # a JVM that cannot use the archive would warn on its standard output, which scripts read


def java_options() -> str:
    """Options for JDK_JAVA_OPTIONS with which Spark's JVMs use the archive; empty if there is none."""
    java = find_java()
    if not isinstance(java, Java) or not (java.home / "lib" / "server" / "classes.jsa").exists():
        return ""
    archive = _archive(java)
    return f"-XX:SharedArchiveFile={archive} {QUIET}" if archive is not None else ""


def _archive(java: Java) -> Path | None:
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    key = hashlib.sha256()
    for part in (java.home, (java.home / "release").read_text(), jars, *sorted(os.listdir(jars)), TRAINING.read_text()):
        key.update(f"{part}\n".encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau-tests"
    archive = cache / f"spark-{key.hexdigest()[:16]}.jsa"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:  # one process makes it, the others wait
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            for old in cache.glob("spark-*.jsa"):
                old.unlink()
            _make(archive)
    return archive if archive.exists() else None


def _make(archive: Path) -> None:
    """Run a few queries in a JVM that dumps its classes at its end."""
    unfinished = archive.with_suffix(".tmp")
    unfinished.unlink(missing_ok=True)
    options = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -XX:ArchiveClassesAtExit={unfinished} {QUIET}"
    done = subprocess.run(
        [sys.executable, str(TRAINING)],
        env={**os.environ, "JDK_JAVA_OPTIONS": options.strip()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode == 0 and unfinished.exists():
        unfinished.rename(archive)
