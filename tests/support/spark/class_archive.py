"""Class data sharing for the Spark JVMs of tests: an archive of loaded classes in the user's cache.

A short Spark JVM spends half of its CPU on loading and verifying some 10,000 classes. A dynamic archive (Java 13+)
holds them ready to be mapped. The JVM of the shared session writes it at its end, if there is none, for later test
runs. A JVM with another Java or another class path ignores it.
"""

import hashlib
import os
import subprocess
import time
from pathlib import Path

from moldau.spark.java import Java, find_java

EXIT_S = 300
KEPT_S = 30 * 86_400  # archives of other environments, 170 MB each
QUIET = "-Xlog:disable"  # a JVM that cannot use the archive would warn on its standard output, which scripts read


class ClassArchive:
    """The archive for the Java and the PySpark of this environment."""

    def __init__(self) -> None:
        self._path = _path()

    @property
    def exists(self) -> bool:
        return self._path is not None and self._path.exists()

    @property
    def use_options(self) -> str:
        """Java options to use the archive; empty if there is none."""
        return f"-XX:SharedArchiveFile={self._path} {QUIET}" if self.exists else ""

    @property
    def dump_options(self) -> str:
        """Java options to write the archive at the end of the JVM; empty if there is one, or cannot be."""
        return f"-XX:ArchiveClassesAtExit={self._unfinished} {QUIET}" if self._path and not self.exists else ""

    def finish(self, jvm: "subprocess.Popen[bytes]") -> None:
        """End the JVM, wait for its archive, and put it in place."""
        if self._path is None or self.exists:
            return
        assert jvm.stdin is not None
        jvm.stdin.close()  # Spark's JVM exits when its standard input ends
        try:
            jvm.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()
        if jvm.returncode == 0 and self._unfinished.exists():
            for other in self._path.parent.glob("spark-*.jsa"):
                if time.time() - other.stat().st_mtime > KEPT_S:
                    other.unlink()
            self._unfinished.rename(self._path)
        self._unfinished.unlink(missing_ok=True)

    @property
    def _unfinished(self) -> Path:
        assert self._path is not None
        return self._path.with_suffix(f".{os.getpid()}")


def _path() -> Path | None:
    """None without Java or without its own archive, on which a dynamic one is based."""
    import pyspark

    java = find_java()
    if not isinstance(java, Java) or not (java.home / "lib" / "server" / "classes.jsa").exists():
        return None
    jars = Path(pyspark.__file__).parent / "jars"
    release = java.home / "release"
    key = hashlib.sha256()
    for part in (java.home, release.read_text() if release.exists() else "", jars, *sorted(os.listdir(jars))):
        key.update(f"{part}\n".encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau-tests"
    cache.mkdir(parents=True, exist_ok=True)
    return cache / f"spark-{key.hexdigest()[:16]}.jsa"
