"""Apache Kafka's Java classes: the jars that the benchmarks download, and a JVM to run Kafka's tools in."""

import os
import select
import struct
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from benchmarks.jars import Jars, obtain

QUICK_START = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
ONE_FOR_ALL = Path(__file__).parent / "java" / "Tools.java"
PIECE = 1 << 16


@cache
def find() -> Jars | str:
    """The jars, or what is missing and how to get it."""
    return obtain()


def classpath() -> str | None:
    """The class path of Kafka's tools and broker, or None if they are not available."""
    found = find()
    return found.class_path if isinstance(found, Jars) else None


def java() -> str | None:
    found = find()
    return found.java if isinstance(found, Jars) else None


def why_missing() -> str:
    """One line for a skipped test."""
    found = find()
    return found if isinstance(found, str) else ""


def run(tool: str, *arguments: str, stdin: str | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools to its end; the caller checks the exit code.

    Before the tool's class there may be system properties: -Dname=value.
    """
    found = find()
    assert isinstance(found, Jars), found
    if found.compiles:
        return _tools().run(tool, *arguments, stdin=stdin or "", timeout=timeout)
    return subprocess.run(
        found.command(tool, *arguments, options=QUICK_START),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}  # java would print it


class Tools:
    """One JVM for all tool runs of this process, one after the other, in java/Tools.java. It ends with this process.

    A separate JVM costs almost two seconds of CPU, and all tests together run tools two hundred times.
    """

    def __init__(self, jars: Jars) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this process
        self.process = subprocess.Popen(
            jars.command(str(ONE_FOR_ALL), options=QUICK_START),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            env=_environment(),
        )

    def run(self, *words: str, stdin: str, timeout: float) -> subprocess.CompletedProcess[str]:
        assert self.process.stdin is not None
        pieces = [*(word.encode() for word in words), stdin.encode()]
        asked = b"".join(struct.pack(">i", len(each)) + each for each in pieces)
        self.process.stdin.write(struct.pack(">i", len(words)) + asked)
        self.process.stdin.flush()
        until = time.monotonic() + timeout
        try:
            (code,) = struct.unpack(">i", self._read(4, until))
            sizes = (struct.unpack(">i", self._read(4, until)) for _ in range(2))
            told = [self._read(size, until).decode() for (size,) in sizes]
        except TimeoutError:
            self.process.kill()
            self.process.wait()
            raise subprocess.TimeoutExpired(words, timeout) from None
        return subprocess.CompletedProcess(words, code, *told)

    def _read(self, size: int, until: float) -> bytes:
        assert self.process.stdout is not None
        found = bytearray()
        while len(found) < size:
            if not select.select([self.process.stdout], [], [], max(until - time.monotonic(), 0))[0]:
                raise TimeoutError
            piece = os.read(self.process.stdout.fileno(), min(size - len(found), PIECE))
            if not piece:
                self.said.seek(0)
                raise RuntimeError(f"the JVM of Kafka's tools ended: {self.said.read().decode(errors='replace')}")
            found += piece
        return bytes(found)


_running: list[Tools] = []


def _tools() -> Tools:
    """The JVM of this process; a new one after a tool that hung."""
    if not _running or _running[-1].process.poll() is not None:
        found = find()
        assert isinstance(found, Jars)
        _running.append(Tools(found))
    return _running[-1]
