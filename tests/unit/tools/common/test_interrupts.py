"""Ctrl-C in commands whose main thread is stuck outside of Python."""

import signal
import subprocess
import sys

import pytest

from support.eventually import eventually

# A mutex that is locked twice: the call does not return, and no signal interrupts it.
STUCK = """
import ctypes
from contextlib import nullcontext, suppress
from moldau.tools.common.interrupts import Interrupts, ended_by_ctrl_c

mutex = ctypes.create_string_buffer(256)
lock = ctypes.CDLL(None).pthread_mutex_lock
lock(mutex)
with ended_by_ctrl_c(), {inner}():
    while True:
        with suppress(KeyboardInterrupt):  # one that came before the call
            print("stuck", flush=True)
            lock(mutex)
"""
PATIENT = """
import signal, time
from moldau.tools.common.interrupts import GRACE_S, ended_by_ctrl_c

with ended_by_ctrl_c():
    for _ in range(2):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            time.sleep(2 * GRACE_S)
print("alive")
"""


@pytest.mark.parametrize("inner", ["nullcontext", "Interrupts"])
def test_ctrl_c_ends_a_command_that_is_stuck(inner: str) -> None:
    script = STUCK.format(inner=inner)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stuck\n"

        def ends() -> bool:
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        eventually(ends, "the process ends")
        assert process.returncode == 130


def test_a_handled_ctrl_c_does_not_end_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", PATIENT], capture_output=True, text=True, check=True)
    assert done.stdout == "alive\n"
