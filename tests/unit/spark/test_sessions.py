"""What a session is started with, and what is said where it cannot be. Needs no Spark."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from moldau.spark.sessions import SparkUnavailable, chosen_settings, local_cores, read_settings, workers_can_import
from moldau.spark.versions import version_error


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[4, 2]", 4),
        ("spark://host:7077", None),
        ("yarn", None),
        ("k8s://https://host", None),
        ("local-cluster[2,1,1024]", None),
    ],
)
def test_cores(master: str, cores: int | None) -> None:
    assert local_cores(master) == cores


def test_all_cores() -> None:
    assert (local_cores("local[*]") or 0) >= 1
    assert local_cores("local[*,4]") == local_cores("local[*]")


def test_python_workers_find_an_installed_pyspark_by_themselves() -> None:
    installed, local = Path(sysconfig.get_path("purelib")) / "pyspark", {"spark.master": "local[2]"}
    assert workers_can_import(installed, local)
    assert not workers_can_import(Path("/elsewhere/pyspark"), local)
    assert not workers_can_import(installed, {"spark.master": "spark://host:7077"})
    assert not workers_can_import(installed, local | {"spark.pyspark.python": "/another/python"})


def test_what_is_chosen() -> None:
    chosen = chosen_settings("orders", "local[3]", {})
    assert chosen["spark.app.name"] == "orders"
    assert chosen["spark.sql.shuffle.partitions"] == "3"
    assert chosen["spark.sql.streaming.stateStore.providerClass"].endswith("RocksDBStateStoreProvider")
    assert chosen["spark.sql.adaptive.streaming.stateless.enabled"] == "false"
    assert chosen["spark.python.daemon.module"] == "moldau.spark.daemon"
    assert chosen["spark.sql.streaming.checkpointFileManagerClass"].endswith("FileSystemBasedCheckpointFileManager")
    on_cluster = chosen_settings("orders", "yarn", {})
    assert "spark.python.daemon.module" not in on_cluster, "executors have their own Python"
    assert "spark.sql.streaming.checkpointFileManagerClass" not in on_cluster, "its store may need FileContext"
    other_python = chosen_settings("orders", "local[3]", {"spark.pyspark.python": "/another/python"})
    assert "spark.python.daemon.module" not in other_python
    assert "spark.sql.shuffle.partitions" not in chosen_settings("orders", "yarn", {}), "the cluster's size is its own"
    assert "spark.driver.host" not in chosen_settings("orders", "yarn", {}), "executors must reach the driver"


def test_what_is_given_wins() -> None:
    given = read_settings({"spark.sql.shuffle.partitions": 7, "spark.ui.enabled": False})
    chosen = chosen_settings("orders", "local[3]", given)
    assert chosen["spark.sql.shuffle.partitions"] == "7"
    assert chosen["spark.ui.enabled"] == "false"


def test_what_is_no_setting_of_sparks() -> None:
    with pytest.raises(SparkUnavailable, match=r"shuffle_partitions is not a Spark setting"):
        read_settings({"shuffle_partitions": 7})


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.10.1", "5.0.0.dev1"])
def test_a_pyspark_that_will_do(version: str) -> None:
    assert version_error(version) is None


@pytest.mark.parametrize("version", ["4.1.9", "3.5.1", "4.0.0", "unknown"])
def test_a_pyspark_that_will_not(version: str) -> None:
    said = version_error(version)
    assert said is not None
    assert said.startswith(f"Moldau needs PySpark 4.2 or later, found {version}. ")
    assert said.endswith("pip install '.[spark]' in a clone of Moldau")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


WITHOUT_PYSPARK = "import sys; sys.modules['pyspark'] = None\n"


def test_without_pyspark_the_session_says_how_to_get_it() -> None:
    code = """
import moldau.spark
try:
    moldau.spark.session("x")
except moldau.spark.SparkUnavailable as said:
    print(said)
"""
    said = run(WITHOUT_PYSPARK + code)
    assert said.startswith("PySpark is not installed")
    assert said.endswith("Get it with: pip install '.[spark]' in a clone of Moldau")


def test_what_spark_looks_for_never_fails_to_be_imported() -> None:
    assert run(WITHOUT_PYSPARK + "import pyspark_moldau; print(hasattr(pyspark_moldau, 'DefaultSource'))") == "False"


def test_importing_our_package_does_not_import_spark() -> None:
    assert run("import sys, moldau.spark, moldau.spark.options; print('pyspark' in sys.modules)") == "False"
