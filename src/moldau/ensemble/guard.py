"""Guard: kills a child process when this process ends in any way, `kill -9` included.

The guard is a shell that waits for a line from us. When its pipe closes without one, this process is gone. Children are
normally stopped without it.
"""

import contextlib
import subprocess

WATCH = 'read -r dismissed || kill -9 "$1"'


class Guard:
    """Create it with the child; `dismiss` it when the child has been waited for."""

    def __init__(self, pid: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "moldau-guard", str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,  # not killed by Ctrl-C
        )

    def dismiss(self) -> None:
        if self._shell.returncode is None:
            with contextlib.suppress(BrokenPipeError):  # it was killed
                self._shell.communicate(b"\n")
