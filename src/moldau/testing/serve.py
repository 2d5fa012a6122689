"""The broker process of `moldau.testing.Broker`: settings as arguments, its address on standard output once it answers.

Without the command line's parser it starts sooner, which counts in a test. A number of milliseconds on standard input
makes that time pass, and is answered when all that was due by then is done. When that pipe ends, so does the
broker: the test was killed, and nobody is left to stop it.
"""

import asyncio
import os
import signal
import stat
import sys
import threading

from moldau.broker.clock import Clock
from moldau.broker.node import Started, run

AHEAD = "clock.ahead.ms"  # no setting of a broker: how much later it is in this test than it really is


def main() -> None:
    properties = dict(argument.split("=", 1) for argument in sys.argv[1:])
    clock = Clock(int(properties.pop(AHEAD, "0")))

    def announce(started: Started) -> None:
        print(f"ready {started.addresses[0]}", flush=True)
        if stat.S_ISFIFO(os.fstat(0).st_mode):
            loop = asyncio.get_running_loop()
            threading.Thread(target=_follow, args=(clock, loop), daemon=True).start()

    sys.exit(run(properties, announce, clock))


def _follow(clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
    # Read without a buffer, whose lock a daemon thread would hold while the interpreter ends.
    while line := os.read(0, 64):
        asyncio.run_coroutine_threadsafe(clock.pass_time(int(line)), loop).result()
        print("passed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)  # in order it might wait for others who are gone, too


if __name__ == "__main__":
    main()
