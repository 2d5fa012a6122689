"""A guard over a child process, which is killed when we end, however we end: `kill -9` included.

Not how children are stopped. The guard is a shell that waits for a line from us; the end of its pipe says that nobody
is left to send one.
"""

import contextlib
import subprocess

WATCH = 'read -r dismissed || kill -9 "$1"'


class Guard:
    """Begins with the child; `dismiss` it once the child has been waited for."""

    def __init__(self, pid: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "moldau-guard", str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is not for it
        )

    def dismiss(self) -> None:
        if self._shell.returncode is None:
            with contextlib.suppress(BrokenPipeError):  # somebody killed it
                self._shell.communicate(b"\n")
