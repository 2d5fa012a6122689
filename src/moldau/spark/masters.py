"""Check a Spark master before Spark starts: Spark itself retries for a minute."""

import re
import socket

LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?|local-cluster\[\d+,\s*\d+,\s*\d+\]")
STANDALONE = "spark://"
DEFAULT_PORT = 7077
CONNECT_S = 5.0
REMOTE = "sc://"
NO_REMOTE = (
    "{master} is a Spark Connect server: connect with SparkSession.builder.remote(...), which needs pip install "
    "'pyspark[connect]'. Its sessions have format('moldau') if the server has Moldau; moldau.spark.session starts Spark"
)
KINDS = "local[N], local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT"


def master_error(master: str) -> str | None:
    """Error message with the remedy; None if the master looks usable."""
    if master == "yarn" or master.startswith("k8s://") or LOCAL.fullmatch(master):
        return None
    if master.startswith(REMOTE):
        return NO_REMOTE.format(master=master)
    if not master.startswith(STANDALONE):
        return f"{master!r} is not a Spark master. Use {KINDS}"
    reason = ""
    for word in master.removeprefix(STANDALONE).split(","):
        host, colon, port = word.strip().rpartition(":")
        if not colon:
            host, port = word.strip(), str(DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            return f"{master!r} is not a master: {word!r} is not HOST:PORT"
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
        except OSError as failed:
            reason = (failed.strerror or str(failed) or type(failed).__name__).lower()
        else:
            return None
    return f"cannot reach the master {master} ({reason}). Check that it is running"
