"""Kafka's own Java classes for the tests: the jars that the benchmarks fetch, and how to run a tool."""

import os
import subprocess
from functools import cache

from benchmarks.jars import Jars, obtain

QUICK_START = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@cache
def find() -> Jars | str:
    """The jars, or what is missing with the way to get it."""
    return obtain()


def classpath() -> str | None:
    """The class path of Kafka's tools and broker, or None where they cannot be had."""
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
    """Run one of Kafka's tools to its end; the caller judges the exit code."""
    found = find()
    assert isinstance(found, Jars), found
    return subprocess.run(
        found.command(tool, *arguments, options=QUICK_START),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"},  # java would tell of it
    )
