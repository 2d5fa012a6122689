"""ClassArchive: Spark's classes as a JVM holds them (class data sharing), in the user's cache, for faster starts.

A JVM spends half of its start on loading and verifying some 10,000 classes. A dynamic archive (Java 13 or later) has
them ready to be mapped. The first JVM writes it at its end, which takes some seconds, once for each Java and PySpark.
A JVM whose class path or Java differ ignores it.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from moldau.spark.java import Java

OWN = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")  # options of users who manage this themselves
INHERITED = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
WRITE_LIMIT_S = 60
KEPT_S = 30 * 86_400  # archives of other environments, 170 MB each, that no session has used
# A JVM warns on its standard output, which scripts read; an archive that cannot be used is no reason to.
QUIET = ("-Xlog:disable", "-Xlog:all=warning,cds*=off,class+path*=off:stderr")


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """One for each Java and PySpark."""

    path: Path

    @classmethod
    def of(cls, java: Java, jars: Path, environment: Mapping[str, str] = os.environ) -> "ClassArchive | None":
        """None if there can be none: a dynamic archive is based on Java's own."""
        if not (java.home / "lib" / "server" / "classes.jsa").exists():
            return None
        key = hashlib.sha256()
        release = java.home / "release"
        text = release.read_text() if release.exists() else ""
        for part in (str(java.home), text, str(jars), *_listed(jars)):
            key.update(f"{part}\n".encode())
        cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau"
        return cls(cache / f"spark-{key.hexdigest()[:16]}.jsa")

    @property
    def claim(self) -> Path:
        """Names the process whose JVM writes the archive."""
        return self.path.with_suffix(".writer")

    @property
    def unfinished(self) -> Path:
        return self.path.with_suffix(f".{os.getpid()}")

    def options(self) -> tuple[str, ...]:
        """Java options that use the archive, or write it, if no other process does."""
        with contextlib.suppress(OSError):  # no place for a cache: no archive
            if self.path.exists():
                os.utime(self.path)
                return (f"-XX:SharedArchiveFile={self.path}", *QUIET)
            if self._claimed():
                return (f"-XX:ArchiveClassesAtExit={self.unfinished}", *QUIET)
        return ()

    def _claimed(self) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            writer = int(self.claim.read_text() or 0)
        except (FileNotFoundError, ValueError):
            writer = 0
        if writer and _is_running(writer):
            return False
        self.claim.write_text(str(os.getpid()))
        return True

    def finish(self, jvm: "subprocess.Popen[bytes]") -> None:
        """End the JVM that writes the archive, wait for it, and put the archive in place."""
        if sys.stderr.isatty() and jvm.poll() is None:
            print("Keeping Spark's classes for faster starts, once …", file=sys.stderr, flush=True)
        try:
            if jvm.stdin is not None:
                with contextlib.suppress(OSError):
                    jvm.stdin.close()  # Spark's JVM exits when its standard input ends
            if jvm.wait(WRITE_LIMIT_S) == 0 and self.unfinished.exists():
                self._remove_old()
                self.unfinished.replace(self.path)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # the next session writes it
            jvm.kill()
            jvm.wait()
        finally:
            self.unfinished.unlink(missing_ok=True)
            self.claim.unlink(missing_ok=True)

    def _remove_old(self) -> None:
        for other in self.path.parent.glob("spark-*"):
            if other.suffix in (".jsa", ".writer") or other.suffix[1:].isdigit():
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - other.stat().st_mtime > KEPT_S:
                        other.unlink()


def manages_sharing(options: Iterable[str], environment: Mapping[str, str]) -> bool:
    """Tell whether the user has options of class data sharing."""
    texts = (*options, *(environment.get(name, "") for name in INHERITED))
    return any(option in text for text in texts for option in OWN)


def _listed(jars: Path) -> list[str]:
    return sorted(os.listdir(jars)) if jars.is_dir() else []


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
