"""Restarts of a failed pipeline: when, and how often. Each start is a fresh process image, made by the caller.

A failed run may leave a dead JVM, threads of the file and half-imported modules behind; `relaunch` replaces them all,
and keeps the process id and the locks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from moldau.spark.pipelines.directory import PipelineLocks
from moldau.spark.pipelines.errors import PipelineError, PipelineRunError, SparkStartError

LIMIT = 5  # restarts in a row, as often as systemd starts a service by default
DELAY_S = 5.0
MAX_DELAY_S = 300.0
HEALTHY_S = 600.0  # a run that lasted so long had no failure of the row before

Relaunch = Callable[[int, str, PipelineLocks], NoReturn]  # with the failures in a row, and the last one


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """At most `limit` restarts in a row, 0 for no limit; the delay doubles from one to the next."""

    limit: int = LIMIT
    delay_s: float = DELAY_S

    def delay_after(self, failures: int) -> float | None:
        """Seconds to wait after so many failures in a row; None: give up."""
        if self.limit and failures > self.limit:
            return None
        return min(self.delay_s * 2.0 ** min(failures - 1, 32), max(self.delay_s, MAX_DELAY_S))


@dataclass(frozen=True, slots=True)
class Restarts:
    """What a run needs to be restarted. `failures` in a row came before it; `locks` are those of the run before."""

    policy: RestartPolicy
    relaunch: Relaunch
    failures: int = 0
    last_failure: str = ""
    locks: PipelineLocks | None = None

    def failures_after(self, ran_s: float) -> int:
        """Failures in a row, with one more after so many seconds."""
        return 1 if ran_s >= HEALTHY_S else self.failures + 1

    def is_worth_it(self, failed: PipelineError) -> bool:
        """Spark that does not start the first time will not start the second time."""
        return isinstance(failed, PipelineRunError) or (self.failures > 0 and isinstance(failed, SparkStartError))
