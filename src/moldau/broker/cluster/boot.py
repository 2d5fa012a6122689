"""Whether all data that a broker has written survived its last stop: after a clean stop, or without a reboot since.

A killed process loses nothing that it wrote: the page cache keeps it. A machine that crashed may have lost unflushed
data. So each log directory has a file with the boot id of its last use. A new or emptied directory has none.
"""

import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from moldau.log.directory import LogDirectory
from moldau.log.files import replace

logger = logging.getLogger("moldau.broker")

NOTE = ".moldau-boot"
LINUX = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The boot id of the machine; empty if the system has none."""
    try:
        if sys.platform == "darwin":
            return subprocess.run(["sysctl", "-n", "kern.boottime"], capture_output=True, text=True, check=True).stdout
        return LINUX.read_text()
    except (OSError, subprocess.SubprocessError):
        return ""


def trusted(directories: Sequence[LogDirectory], boot: str) -> bool:
    """Whether all online directories have everything that was written to them."""
    working = (each for each in directories if not each.offline)
    return all(each.clean or (boot != "" and _noted(each) == boot.strip()) for each in working)


def note(directories: Sequence[LogDirectory], boot: str) -> None:
    """Write the boot id into each directory. If that fails an older one stays, and the next start does not trust it."""
    for each in directories:
        if each.offline:
            continue
        try:
            replace(each.path / NOTE, boot.strip().encode())
        except OSError as problem:
            logger.warning(
                "Cannot write %s; after an unclean stop the data in %s will not be trusted: %s",
                NOTE,
                each.path,
                problem,
            )


def _noted(directory: LogDirectory) -> str:
    try:
        return (directory.path / NOTE).read_text()
    except (OSError, UnicodeDecodeError):
        return ""
