"""List pipelines, read their status, and stop them, from any process that sees the data directory."""

import os
import signal
import time

from moldau.spark.pipelines.directory import (
    PipelineDirectory,
    absolute,
    is_locked,
    pipeline_directories,
    pipeline_directory,
)
from moldau.spark.pipelines.errors import PipelineNotFound, PipelineNotRunning, StopNotPermitted, StopTimeout
from moldau.spark.pipelines.status import PipelineStatus, read_status

POLL_S = 0.1


def list_pipelines(data_directory: str) -> list[PipelineStatus]:
    """All pipelines that run or have run in this data directory, by name."""
    return [status for each in pipeline_directories(data_directory) if (status := read_status(each)) is not None]


def pipeline_status(data_directory: str, name: str) -> PipelineStatus:
    """Status of one pipeline; raises PipelineNotFound."""
    return _existing(data_directory, name)[1]


def stop_pipeline(data_directory: str, name: str, timeout_s: float = 60.0) -> PipelineStatus:
    """Ask a pipeline to stop after its current batches, wait for its process to end, and return the last status.

    Raises PipelineNotFound, PipelineNotRunning, StopNotPermitted or StopTimeout.
    """
    directory, status = _existing(data_directory, name)
    if not status.is_alive:
        raise PipelineNotRunning(name, status.state)
    try:
        os.kill(status.pid, signal.SIGTERM)
    except ProcessLookupError:
        raise PipelineNotRunning(name, "gone") from None
    except PermissionError:
        raise StopNotPermitted(name, status.pid) from None
    deadline = time.monotonic() + timeout_s
    while is_locked(directory):
        if time.monotonic() > deadline:
            raise StopTimeout(name, status.pid, timeout_s)
        time.sleep(POLL_S)
    return read_status(directory) or status


def _existing(data_directory: str, name: str) -> tuple[PipelineDirectory, PipelineStatus]:
    directory = pipeline_directory(data_directory, name)
    status = read_status(directory)
    if status is None:
        known = tuple(each.name for each in list_pipelines(data_directory))
        raise PipelineNotFound(name, absolute(data_directory), known)
    return directory, status
