"""Process of `moldau.testing.Broker`: settings as arguments, its address on standard output once it is ready.

It has no command line parser, because it starts faster without. A number of milliseconds on standard input advances the
clock; the response comes when everything due is done. When standard input closes, the test was killed, and the broker
exits.
"""

import asyncio
import os
import signal
import stat
import sys
import threading

from moldau.broker.clock import Clock
from moldau.broker.node import Started, run

AHEAD = "clock.ahead.ms"  # not a broker setting: offset of the test's clock


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
    # Unbuffered: a daemon thread would hold the buffer's lock while the interpreter exits.
    while line := os.read(0, 64):
        asyncio.run_coroutine_threadsafe(clock.pass_time(int(line)), loop).result()
        print("passed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)  # a clean shutdown might wait for brokers that were killed too


if __name__ == "__main__":
    main()
