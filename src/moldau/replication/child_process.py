"""Child processes of a broker that are programs of Moldau: they read standard input and write standard output."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Final

import moldau

BUFFER_BYTES: Final = 64 * 1024  # of what was not read yet; also the longest line


async def start(program: str, *arguments: str, limit: int = BUFFER_BYTES) -> Process:
    """Start a module. It imports the same version of Moldau as this process."""
    path = os.pathsep.join(filter(None, (str(Path(moldau.__file__).parent.parent), os.environ.get("PYTHONPATH"))))
    command = (sys.executable, "-m", program, *arguments)
    environment = {**os.environ, "PYTHONPATH": path}
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=limit, env=environment)
