"""A standalone Spark cluster: one master and two workers, started with PySpark's `spark-class`.

Workers have their own Python without packages: the query must bring everything that tasks need.
"""

import os
import subprocess
import sys
import time
import venv
from pathlib import Path

import psutil
import pyspark

from moldau.ensemble.ports import HOST
from moldau.spark.java import Java
from support.brokers.processes import free_port
from support.spark.processes import kill_all

SPARK = Path(pyspark.__file__).parent
CLASSES = "org.apache.spark.deploy"
EXECUTOR = "CoarseGrainedExecutorBackend"
PATIENCE_S = 300
LOOK_AGAIN_S = 0.1
OF_PYTHON = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "JAVA")


def bare_python(directory: Path, python: str = sys.executable) -> Path:
    """The `bin` of an environment without packages."""
    if python == sys.executable:
        venv.create(directory, symlinks=True)
    else:
        subprocess.run([python, "-m", "venv", "--without-pip", str(directory)], check=True)
    return directory / "bin"


class SparkCluster:
    """`with SparkCluster(…) as cluster: cluster.master`. Each worker has one core and runs one executor."""

    def __init__(self, directory: Path, java: Java, python: Path, workers: int = 2) -> None:
        self.directory = directory
        self.java = java
        self.python = python
        self.count = workers
        self.port = free_port()
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def __enter__(self) -> "SparkCluster":
        at = ("--host", HOST, "--webui-port", "0")
        try:
            self._start("master", f"{CLASSES}.master.Master", *at, "--port", str(self.port))
            self._await("master", "I have been elected leader")
            for number in range(self.count):
                work = self.directory / f"work-{number}"
                more = ("--cores", "1", "--memory", "1g", "--work-dir", str(work), self.master)
                self._start(f"worker-{number}", f"{CLASSES}.worker.Worker", *at, *more)
            for number in range(self.count):
                self._await(f"worker-{number}", "Successfully registered with master")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.kill()
            process.wait()
            kill_all(family)

    def executors(self) -> list[psutil.Process]:
        """The processes of running executors."""
        started = [each for process in self.processes for each in psutil.Process(process.pid).children(recursive=True)]
        return [each for each in started if _runs(each, EXECUTOR)]

    def said(self) -> str:
        """The logs of executors, for a failed test."""
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in self.directory.glob("work-*/*/*/stderr"))

    def _start(self, name: str, *command: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_PYTHON)}
        environment |= {
            "JAVA_HOME": str(self.java.home),
            "PATH": os.pathsep.join((str(self.python), environment["PATH"])),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": HOST,
        }
        with self._log(name).open("wb") as log:
            command = (str(SPARK / "bin" / "spark-class"), *command)
            self.processes.append(
                subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _await(self, name: str, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while words not in self._log(name).read_text(errors="replace"):
            assert time.monotonic() < deadline, f"{name}: {self._log(name).read_text(errors='replace')[-4000:]}"
            time.sleep(LOOK_AGAIN_S)

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"


def _runs(process: psutil.Process, java_class: str) -> bool:
    try:
        return any(word.endswith(java_class) for word in process.cmdline())
    except psutil.Error:  # it has ended
        return False
