"""Record worker: checks the records of batches outside the broker's process.

`python -m moldau.replication.record_worker_main SECONDS`. It reads requests from standard input and writes responses to
standard output (`record_workers.py` is the other end). It ends when its input does, which also happens when the broker
dies, and when a check takes longer than SECONDS: a timer of the kernel ends it then, whatever its code is doing.
"""

import os
import resource
import signal
import sys
from typing import BinaryIO, Final

from moldau.replication.record_checks import BatchChecks
from moldau.replication.record_rules import RecordRules
from moldau.replication.worker_frames import LENGTHS, READY, Request, pack_response

MEMORY_BYTES: Final = 4 * 1024**3  # of address space: a batch that needs more costs the worker, not the machine


def main() -> None:
    seconds = float(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which then ends this process
    _limit_memory()
    requests, responses = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints goes to the broker's log
    _send(responses, [READY])
    known: dict[str, BatchChecks] = {}
    while lengths := requests.read(LENGTHS.size):
        head_size, body_size = LENGTHS.unpack(lengths)
        request = Request.read(requests.read(head_size))
        batch = requests.read(body_size)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        if request.forget:
            known.clear()
        if request.definition is not None:
            known[request.rules] = BatchChecks(RecordRules.unpacked(request.definition))
        checked = known[request.rules].check(batch, request.partition)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(responses, pack_response(checked))


def _send(responses: BinaryIO, pieces: list[bytes]) -> None:
    responses.writelines(pieces)
    responses.flush()


def _limit_memory() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY or most > MEMORY_BYTES:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, most))


if __name__ == "__main__":
    main()
