"""Loading the file of a pipeline."""

import sys
from pathlib import Path

import pytest

from moldau.spark.pipelines.errors import PipelineFileError
from moldau.spark.pipelines.script import load_main, modules_of


@pytest.fixture
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def main(spark:\n  pass", "is not valid Python: .*line 1"),
        ("x = 1 / 0", r"ZeroDivisionError: division by zero \(line 1\)"),
        ("import no_such_module", "No module named 'no_such_module'.*line 1"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("x = 1", r"has no main\(spark\)"),
        ("main = 1", "is not a function"),
        ("def main(): ...", "must take one argument"),
        ("async def main(spark): ...", "not async"),
    ],
)
@pytest.mark.usefixtures("_as_before")
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "orders.py"
    file.write_text(text)
    with pytest.raises(PipelineFileError, match=words) as failed:
        load_main(str(file), ())
    assert str(file) in str(failed.value)
    assert "\n" not in str(failed.value)


@pytest.mark.usefixtures("_as_before")
def test_a_file_without_pyspark_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it were not installed
    file = tmp_path / "orders.py"
    file.write_text("import pyspark.sql.functions\ndef main(spark): ...")
    with pytest.raises(PipelineFileError, match=r"orders.py needs PySpark, .* pip install '.\[spark\]'"):
        load_main(str(file), ())


@pytest.mark.usefixtures("_as_before")
def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="No such file"):
        load_main(str(tmp_path / "nowhere.py"), ())
    with pytest.raises(PipelineFileError, match="is a directory"):
        load_main(str(tmp_path), ())
    (tmp_path / "binary.py").write_bytes(b"\0\1")
    with pytest.raises(PipelineFileError, match="not a Python file"):
        load_main(str(tmp_path / "binary.py"), ())


@pytest.mark.usefixtures("_as_before")
def test_a_file_sees_its_arguments_and_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("ANSWER = 42")
    (tmp_path / "any name").write_text(
        "import sys, beside_it\ndef main(spark, more=1):\n    return beside_it.ANSWER, sys.argv[1:]"
    )
    main = load_main(str(tmp_path / "any name"), ["a", "-b"])
    assert main(None) == (42, ["a", "-b"])
    assert {each.__name__ for each in modules_of(str(tmp_path / "any name"))} == {"moldau_pipeline_file", "beside_it"}
