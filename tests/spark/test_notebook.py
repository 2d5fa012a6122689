"""A Jupyter notebook, run in a kernel as JupyterLab does it: session, stream, errors, and the end of the JVM."""

import os
from pathlib import Path

import psutil
import pytest

from support.brokers.processes import AnyBroker, CreateTopic

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")
nbformat = pytest.importorskip("nbformat", reason="needs pip install nbclient ipykernel")
nbclient = pytest.importorskip("nbclient", reason="needs pip install nbclient ipykernel")
pytest.importorskip("ipykernel", reason="needs pip install nbclient ipykernel")

CELLS = (
    """
    from moldau.spark import session
    spark = session("notebook", "local[2]", **{"spark.driver.memory": "600m", "spark.ui.enabled": False})
    """,
    """
    where = {"kafka.bootstrap.servers": BOOTSTRAP}
    frame = spark.createDataFrame([("a", "1"), ("b", "2")], "key string, value string")
    frame.write.format("moldau").options(**where, topic=TOPIC).mode("append").save()
    spark.read.format("moldau").options(**where, subscribe=TOPIC).load().selectExpr("string(value)").show()
    """,
    """
    stream = spark.readStream.format("moldau").options(**where, subscribe=TOPIC, startingOffsets="earliest").load()
    query = stream.writeStream.format("memory").queryName("seen").option("checkpointLocation", CHECKPOINT).start()
    query.processAllAvailable()
    spark.table("seen").count()
    """,
    "query.status['message'], query.stop(), query.exception()",
    "spark.read.format('moldau').options(**where, subscribe='not-there').load().count()",
    "spark = session('notebook'); spark.range(3).count()  # the cell is run again",
)


def test_a_notebook(broker: AnyBroker, create_topic: CreateTopic, tmp_path: Path, python_path: str) -> None:
    names = {"BOOTSTRAP": broker.bootstrap, "TOPIC": create_topic(), "CHECKPOINT": str(tmp_path / "checkpoint")}
    setup = "\n".join(f"{name} = {value!r}" for name, value in names.items())
    cells = [nbformat.v4.new_code_cell(text.replace("\n    ", "\n").strip()) for text in (setup, *CELLS)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(notebook, timeout=300, allow_errors=True, kernel_name="python3")
    before = {each.pid for each in psutil.Process().children(recursive=True)}
    client.execute(env={**os.environ, "PYTHONPATH": python_path})
    started, shown, counted, stopped, refused, again = (cell.outputs for cell in notebook.cells[1:])
    assert "Spark 4" in text_of(started), started
    assert {"|    1|", "|    2|"} <= set(text_of(shown).split("\n")), shown
    assert text_of(counted) == "2"
    assert text_of(stopped).endswith("None,\n None)"), "stopped, and without an error"
    assert refused[-1].output_type == "error"
    sentence = "the topic not-there does not exist; create it, or correct the option that names it"
    assert sentence in refused[-1].evalue
    assert text_of(again).endswith("3")
    left = [each for each in psutil.Process().children(recursive=True) if each.pid not in before and is_java(each)]
    assert not psutil.wait_procs(left, timeout=60)[1], "the JVM ends with the kernel"


def text_of(outputs: list[dict[str, object]]) -> str:
    parts = []
    for each in outputs:
        data = each.get("data", {"text/plain": each.get("text", "")})
        assert isinstance(data, dict)
        parts.append(str(data["text/plain"]))
    return "".join(parts)


def is_java(process: psutil.Process) -> bool:
    try:
        return "java" in process.name()
    except psutil.Error:  # it has ended
        return False
