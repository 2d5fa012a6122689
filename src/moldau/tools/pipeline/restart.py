"""`--restart` of `moldau pipeline run`: its value, and the start of this command anew in the same process."""

import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NoReturn

from moldau.base.times import read_span
from moldau.tools.common.failure import misused

if TYPE_CHECKING:
    from moldau.spark.pipelines.directory import PipelineLocks
    from moldau.spark.pipelines.restarts import RestartPolicy, Restarts
    from moldau.spark.pipelines.run import PipelineSpec

ATTEMPT = "MOLDAU_PIPELINE_ATTEMPT"  # environment variable of a restarted command
ON_FAILURE = re.compile(r"on-failure(?::(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a restarted command takes over. `start` is --from as it was resolved first: "10m ago" must not move on."""

    failures: int
    last_failure: str
    start: str
    locks: tuple[int, int]


def read_restart(text: str, delay: str) -> "RestartPolicy | None":
    """The policy; None for no restarts."""
    from moldau.spark.pipelines.restarts import LIMIT, RestartPolicy

    try:
        delay_ms = read_span(delay)
    except ValueError as wrong:
        raise misused(f"--restart-delay: {wrong}", remedy="Give a length of time such as 5s") from wrong
    if text == "no":
        return None
    match = ON_FAILURE.fullmatch(text)
    if match is None:
        raise misused(f"--restart {text!r} is not a policy", remedy="Give no, on-failure or on-failure:N (0: no limit)")
    return RestartPolicy(LIMIT if match[1] is None else int(match[1]), delay_ms / 1000)


def take_attempt() -> Attempt | None:
    """What the command before has left in the environment; None if this is the first."""
    text = os.environ.pop(ATTEMPT, None)
    if text is None:
        return None
    document = json.loads(text)
    return Attempt(document["failures"], document["last_failure"], document["start"], tuple(document["locks"]))


def restarts_of(policy: "RestartPolicy", spec: "PipelineSpec", attempt: Attempt | None) -> "Restarts":
    from moldau.spark.pipelines.directory import inherited_locks, pipeline_directory
    from moldau.spark.pipelines.restarts import Restarts

    environment, folder = dict(os.environ), os.getcwd()  # the pipeline's file may change both

    def relaunch(failures: int, last_failure: str, locks: "PipelineLocks") -> NoReturn:
        os.chdir(folder)
        sys.stdout.flush()
        sys.stderr.flush()
        left = json.dumps(asdict(Attempt(failures, last_failure, spec.start, (locks.lock, locks.alive))))
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**environment, ATTEMPT: left})

    if attempt is None:
        return Restarts(policy, relaunch)
    locks = inherited_locks(pipeline_directory(spec.data_directory, spec.name), attempt.locks)
    return Restarts(policy, relaunch, attempt.failures, attempt.last_failure, locks)
