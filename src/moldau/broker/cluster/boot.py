"""Whether what a broker had written before it stopped is still there: after a clean stop, or if the machine ran on.

A process that is killed loses nothing that it wrote: the page cache keeps it. A machine that went down may have lost
what was not synced. So each directory has a note of the boot in which it was last used. A directory that is new, or
was emptied, has none.
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
    """Another one after each start of the machine; empty where the system does not tell."""
    try:
        if sys.platform == "darwin":
            return subprocess.run(["sysctl", "-n", "kern.boottime"], capture_output=True, text=True, check=True).stdout
        return LINUX.read_text()
    except (OSError, subprocess.SubprocessError):
        return ""


def trusted(directories: Sequence[LogDirectory], boot: str) -> bool:
    """Whether all directories have what was written to them. Of those that failed nothing is used anyway."""
    working = (each for each in directories if not each.offline)
    return all(each.clean or (boot != "" and _noted(each) == boot.strip()) for each in working)


def note(directories: Sequence[LogDirectory], boot: str) -> None:
    """Where that cannot be, an earlier note stays, and the next start trusts what is there all the less."""
    for each in directories:
        if each.offline:
            continue
        try:
            replace(each.path / NOTE, boot.strip().encode())
        except OSError as problem:
            logger.warning("%s does not tell that it is in use since this start of the machine: %s", each.path, problem)


def _noted(directory: LogDirectory) -> str:
    try:
        return (directory.path / NOTE).read_text()
    except (OSError, UnicodeDecodeError):
        return ""
