"""Required version of PySpark. Does not import it."""

import importlib.metadata
import re

MIN_VERSION = (4, 2)  # first with `latestOffset(start, limit)` in Python data sources
INSTALL = "pip install '.[spark]' in a clone of Moldau"


def installed(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def version_error(version: str) -> str | None:
    """Error message with the remedy for an unsuitable version of PySpark; else None."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) >= MIN_VERSION:
        return None
    wanted = ".".join(map(str, MIN_VERSION))
    return f"Moldau needs PySpark {wanted} or later, found {version}. Install it with: {INSTALL}"
