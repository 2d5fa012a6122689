"""`moldau.spark.session`: finds Java, starts Spark with suitable settings, and registers `format("moldau")`.

Settings of the caller override those chosen here.
"""

import atexit
import os
import re
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.spark.defaults import VARIABLE_OF, set_defaults
from moldau.spark.java import Java, NoJava, find_java
from moldau.spark.jvm import JvmFailed, java_options, started, uses_own_command
from moldau.spark.lost_jvm import report_once
from moldau.spark.masters import NO_REMOTE, REMOTE
from moldau.spark.pack import PackFailed, pack_settings, use_name, worker_python
from moldau.spark.source.plan import CORES
from moldau.spark.versions import INSTALL, version_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")
PYTHON = "PYSPARK_PYTHON"
PACK = "moldau.pack"  # archive with the packages of executors on a cluster
OUR_SETTINGS = (PACK, *VARIABLE_OF)
DAEMON = "moldau.spark.daemon"
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_reporting: set[str] = set()  # applications with a QueryGroups listener


class SparkUnavailable(Exception):
    """Spark cannot start: one sentence with the reason and the remedy."""


def session(name: str, master: str = "local[*]", **settings: object) -> "SparkSession":
    """A SparkSession of this name. Settings are Spark's own, given as `**{"spark.driver.memory": "4g"}`.

    Our own are `moldau.pack`, the archive of `moldau spark pack` for executors on a cluster, and the defaults of all
    queries: `moldau.bootstrap` (kafka.bootstrap.servers) and `moldau.start` (where streams start).
    """
    if master.startswith(REMOTE):
        raise SparkUnavailable(NO_REMOTE.format(master=master))
    wanted = chosen_settings(name, master, read_settings(settings))
    packed = _packed(wanted)
    defaults = _defaults(wanted)
    version = _pyspark_version()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    _use_this_python(wanted, packed)
    builder = SparkSession.builder
    for key, value in wanted.items():
        builder = builder.config(key, value)
    if SparkContext._gateway is not None:  # the JVM is running; a process has one
        return _ready(builder.getOrCreate(), defaults)
    java = find_java()
    if isinstance(java, NoJava):
        raise SparkUnavailable(java.reason)
    try:
        with _told(f"Spark {version} on Java {java.version}", master), _jvm(java, wanted, builder):
            return _ready(builder.getOrCreate(), defaults)
    except JvmFailed as failed:
        raise SparkUnavailable(f"Spark did not start: {failed}") from failed


def read_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as text; raises SparkUnavailable for names that are not Spark's."""
    for key in settings:
        if not key.startswith("spark.") and key not in OUR_SETTINGS:
            example = 'Give them as **{"spark.driver.memory": "4g"}'
            raise SparkUnavailable(f"{key} is not a Spark setting: their names begin with 'spark.'. {example}")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}


def chosen_settings(name: str, master: str, given: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session."""
    chosen = {
        "spark.app.name": name,
        "spark.master": master,
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        # A replayed batch must have the same tasks, or exactly-once cannot recognize them.
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    cores = local_cores(given.get("spark.master", master))
    if cores is not None:
        chosen["spark.sql.shuffle.partitions"] = str(cores)
        # Driver and executors are one process: the host name does not matter.
        chosen["spark.driver.host"] = "localhost"
        chosen["spark.driver.bindAddress"] = "127.0.0.1"
        # Spark's default starts a process (readlink) for each path that it renames: decision 32.
        chosen["spark.sql.streaming.checkpointFileManagerClass"] = CHECKPOINT_FILES
        if "spark.pyspark.python" not in given:
            chosen["spark.python.daemon.module"] = DAEMON
    return {**chosen, **given}


def local_cores(master: str) -> int | None:
    """Number of cores of a local master; None for a cluster."""
    match = LOCAL.fullmatch(master.strip())
    if match is None:
        return None
    if match[1] == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(match[1] or 1)


def _pyspark_version() -> str:
    if sys.platform == "win32":
        raise SparkUnavailable("Spark pipelines do not run natively on Windows. Install Moldau in WSL2: wsl --install")
    try:
        import pyspark
    except ImportError as missing:
        raise SparkUnavailable(f"PySpark is not installed ({missing}). Get it with: {INSTALL}") from missing
    wrong = version_error(pyspark.__version__)
    if wrong:
        raise SparkUnavailable(wrong)
    version: str = pyspark.__version__
    return version


def _packed(settings: dict[str, str]) -> bool:
    """Replace `moldau.pack` by Spark's settings; tell whether executors will use the archive."""
    file = settings.pop(PACK, None)
    if file is None or local_cores(settings["spark.master"]) is not None:  # packages are installed here
        return False
    try:
        settings.update(pack_settings(file, settings))
    except PackFailed as failed:
        raise SparkUnavailable(str(failed)) from failed
    return True


def _defaults(settings: dict[str, str]) -> dict[str, str]:
    """Remove the defaults of queries (defaults.py) from the settings, and return them as variables."""
    return {variable: settings.pop(key) for key, variable in VARIABLE_OF.items() if key in settings}


def _use_this_python(settings: Mapping[str, str], packed: bool) -> None:
    """Make Python workers run this interpreter. Without an active venv Spark takes another, which fails silently."""
    if "spark.pyspark.python" in settings:
        return
    local = local_cores(settings["spark.master"]) is not None
    if packed and not os.environ.get(PYTHON):
        try:
            use_name()
        except PackFailed as failed:
            raise SparkUnavailable(str(failed)) from failed
        os.environ[PYTHON] = worker_python()
        return
    if local or not os.environ.get(PYTHON):  # on a cluster the environment may name the workers' Python
        os.environ[PYTHON] = sys.executable


def workers_can_import(package: Path, settings: Mapping[str, str]) -> bool:
    """Tell whether Python workers import the same PySpark without being given a path."""
    same_python = local_cores(settings["spark.master"]) is not None and "spark.pyspark.python" not in settings
    return same_python and package.parent == Path(sysconfig.get_path("purelib"))


def _jvm(java: Java, settings: dict[str, str], builder: "SparkSession.Builder") -> AbstractContextManager[None]:
    import pyspark

    if uses_own_command(java, os.environ):
        package = Path(pyspark.__file__).parent
        home = os.environ.get("SPARK_HOME")
        installed = not home and workers_can_import(package, settings)
        return started(java, Path(home or package), settings, installed=installed)
    os.environ["JAVA_HOME"] = str(java.home)  # for Spark's scripts
    more = settings.get("spark.driver.extraJavaOptions", "")
    builder.config("spark.driver.extraJavaOptions", f"{java_options()} {more}".strip())
    return nullcontext()


def _ready(spark: "SparkSession", defaults: Mapping[str, str]) -> "SparkSession":
    """Register the source. Spark also discovers it, unless another `pyspark_*` module is broken.

    Also sets the number of cores, for which the source plans its tasks.
    """
    from moldau.spark.output_modes import refuse_update_mode
    from moldau.spark.registration import register

    set_defaults(defaults, spark.sparkContext.environment)
    spark.sparkContext.environment[CORES] = str(spark.sparkContext.defaultParallelism)
    register(spark)
    refuse_update_mode()
    report_once()
    _report_to_groups(spark)
    return spark


def _report_to_groups(spark: "SparkSession") -> None:
    """Commit the progress of named queries to groups; once per application."""
    from moldau.spark.query_groups import QueryGroups
    from moldau.spark.query_listener import QueryListener

    application = spark.sparkContext.applicationId
    if application not in _reporting:
        _reporting.add(application)
        groups = QueryGroups(spark)
        spark.streams.addListener(
            QueryListener(started=groups.started, progressed=groups.progressed, ended=groups.ended)
        )
        atexit.register(groups.settle)


@contextmanager
def _told(what: str, master: str) -> Iterator[None]:
    """Print a line to standard error, because the start takes seconds."""
    begun = time.monotonic()
    terminal = sys.stderr.isatty()
    if terminal:
        print(f"Starting {what} …", end="", file=sys.stderr, flush=True)
    try:
        yield
    except BaseException:
        if terminal:
            print(file=sys.stderr)
        raise
    start = "\r" if terminal else ""
    print(f"{start}{what} is ready ({master}, {time.monotonic() - begun:.1f} s)", file=sys.stderr, flush=True)
