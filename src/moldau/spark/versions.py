"""Which PySpark will do, and what to say to those who have another. Imports none."""

import importlib.metadata
import re

MIN_VERSION = (4, 2)  # data sources in Python have `latestOffset(start, limit)` since then
INSTALL = "pip install '.[spark]' in a clone of Moldau"


def installed(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def version_error(version: str) -> str | None:
    """What is wrong with this version of PySpark, with the remedy; None if it will do."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) >= MIN_VERSION:
        return None
    wanted = ".".join(map(str, MIN_VERSION))
    return f"Moldau needs PySpark {wanted} or later, and this is {version}. Get a newer one: {INSTALL}"
