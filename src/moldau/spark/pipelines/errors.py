"""Errors of pipelines. Each message is one sentence that names the pipeline, file or query; the type tells the case."""

from pathlib import Path


class PipelineError(Exception):
    """Base of all errors of this package."""


class InvalidPipelineName(PipelineError):
    """The name cannot be the name of a directory."""


class PipelineDirectoryError(PipelineError):
    """The data directory cannot be read or written."""


class PipelineFileError(PipelineError):
    """The file cannot be loaded, or has no usable `main(spark)`."""


class SparkStartError(PipelineError):
    """Spark did not start, so `main` was not called."""


class PipelineRunError(PipelineError):
    """`main` or a query failed after Spark had started. `log` has the stack trace."""

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message if log is None else f"{message} (log: {log})")
        self.log = log


class PipelineAlreadyRunning(PipelineError):
    """Another process runs a pipeline of this name in the same data directory."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the pipeline {name} is already running")
        self.name = name


class PipelineNotFound(PipelineError):
    """No pipeline of this name has run in the data directory. `known` has the names of those that have."""

    def __init__(self, name: str, directory: Path, known: tuple[str, ...]) -> None:
        super().__init__(f"there is no pipeline {name!r} in {directory}")
        self.name, self.directory, self.known = name, directory, known


class PipelineNotRunning(PipelineError):
    """The pipeline exists and no process runs it."""

    def __init__(self, name: str, state: str) -> None:
        super().__init__(f"the pipeline {name} is not running: it is {state}")
        self.name, self.state = name, state


class StopNotPermitted(PipelineError):
    """The process of the pipeline belongs to another user."""

    def __init__(self, name: str, pid: int) -> None:
        super().__init__(f"the pipeline {name} belongs to another user (process {pid})")
        self.name, self.pid = name, pid


class StopTimeout(PipelineError):
    """The pipeline got the stop request and has not stopped in time. It still stops when its batch is done."""

    def __init__(self, name: str, pid: int, timeout_s: float) -> None:
        super().__init__(f"the pipeline {name} (process {pid}) did not stop within {timeout_s:g} s")
        self.name, self.pid, self.timeout_s = name, pid, timeout_s
