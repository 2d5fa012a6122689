"""`moldau.spark.session`: a SparkSession that just works. Finds Java, starts Spark, and knows `format("moldau")`.

Settings that are given win over all that is chosen here.
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
from moldau.spark.pack import PackFailed, pack_settings, use_name, worker_python
from moldau.spark.source.plan import CORES
from moldau.spark.versions import INSTALL, version_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")
PYTHON = "PYSPARK_PYTHON"
PACK = "moldau.pack"  # the archive that executors on a cluster take packages from
OUR_SETTINGS = (PACK, *VARIABLE_OF)
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_reporting: set[str] = set()  # applications whose queries are reported


class SparkUnavailable(Exception):
    """Spark cannot be started here: one sentence why, and what to do."""


def session(name: str, master: str = "local[*]", **settings: object) -> "SparkSession":
    """A SparkSession of this name. Settings are Spark's own, given as `**{"spark.driver.memory": "4g"}`.

    Ours are `moldau.pack`, the archive of `moldau spark pack` for executors on a cluster, and for all queries that do
    not say it themselves `moldau.bootstrap` and `moldau.start`: whom they ask first, and where streams begin.
    """
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
    if SparkContext._gateway is not None:  # Spark's JVM is there already; a process has one
        return _ready(builder.getOrCreate(), defaults)
    java = find_java()
    if isinstance(java, NoJava):
        raise SparkUnavailable(java.reason)
    try:
        with _told(f"Spark {version} on Java {java.version}", master), _jvm(java, wanted, builder):
            return _ready(builder.getOrCreate(), defaults)
    except JvmFailed as failed:
        raise SparkUnavailable(f"Spark does not start: {failed}") from failed


def read_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as Spark writes them; what is none of its own is refused."""
    for key in settings:
        if not key.startswith("spark.") and key not in OUR_SETTINGS:
            example = 'Give them as **{"spark.driver.memory": "4g"}'
            raise SparkUnavailable(f"{key} is not a setting of Spark's: they begin with spark. {example}")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}


def chosen_settings(name: str, master: str, given: Mapping[str, str]) -> dict[str, str]:
    """What a session runs with."""
    chosen = {
        "spark.app.name": name,
        "spark.master": master,
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        # A batch that is replayed must be cut into the same tasks, or exactly-once could not recognize them.
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    cores = local_cores(given.get("spark.master", master))
    if cores is not None:
        chosen["spark.sql.shuffle.partitions"] = str(cores)
        # Driver and executors are one process here: what the machine calls itself does not matter.
        chosen["spark.driver.host"] = "localhost"
        chosen["spark.driver.bindAddress"] = "127.0.0.1"
    return {**chosen, **given}


def local_cores(master: str) -> int | None:
    """How many tasks run at once with this master; None if it is not this machine alone."""
    match = LOCAL.fullmatch(master.strip())
    if match is None:
        return None
    if match[1] == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(match[1] or 1)


def _pyspark_version() -> str:
    if sys.platform == "win32":
        raise SparkUnavailable("Spark pipelines do not run on Windows itself. Install Moldau in WSL2: wsl --install")
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
    """Puts Spark's own settings in the place of `moldau.pack`; whether executors will use the archive."""
    file = settings.pop(PACK, None)
    if file is None or local_cores(settings["spark.master"]) is not None:  # here everything is installed
        return False
    try:
        settings.update(pack_settings(file, settings))
    except PackFailed as failed:
        raise SparkUnavailable(str(failed)) from failed
    return True


def _defaults(settings: dict[str, str]) -> dict[str, str]:
    """Takes out what queries are to have that do not say it themselves (defaults.py), as variables."""
    return {variable: settings.pop(key) for key, variable in VARIABLE_OF.items() if key in settings}


def _use_this_python(settings: Mapping[str, str], packed: bool) -> None:
    """Python workers run this interpreter. In an unactivated venv Spark would take another, and die without a word."""
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
    if local or not os.environ.get(PYTHON):  # on a cluster the environment may name the workers' own
        os.environ[PYTHON] = sys.executable


def workers_can_import(package: Path, settings: Mapping[str, str]) -> bool:
    """Whether Python workers import the same PySpark as we do, if nobody tells them where it is."""
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
    """Registers our source: Spark finds it by itself, unless somebody else's `pyspark_*` module is broken.

    And only a source that is registered here can be told how many cores there are, to plan its tasks for.
    """
    from moldau.spark.datasource import MoldauDataSource

    set_defaults(defaults, spark.sparkContext.environment)
    spark.sparkContext.environment[CORES] = str(spark.sparkContext.defaultParallelism)
    spark.dataSource.register(MoldauDataSource)
    _report_to_groups(spark)
    return spark


def _report_to_groups(spark: "SparkSession") -> None:
    """Once for each application: a named query's progress is committed for the group of its name."""
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
    """One line on standard error, because the first seconds are long."""
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
