"""The archive for executors: what is in it, and which one is refused. Needs no Spark."""

import json
import sys
import tarfile
from pathlib import Path

import pytest

from moldau.spark import pack
from moldau.spark.pack import FOLDER, LABEL, PackFailed, make_pack, pack_settings, required
from moldau.spark.sessions import SparkUnavailable, read_settings


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "ROOTS", ("crc32c",))


@pytest.mark.usefixtures("_small")
def test_what_is_in_an_archive(tmp_path: Path) -> None:
    made = make_pack(tmp_path / "packages.tar.gz", also=["cramjam"])
    assert {"moldau", "crc32c", "cramjam"} <= set(made.packages)
    with tarfile.open(made.file) as archive:
        names = archive.getnames()
        label = json.load(archive.extractfile(LABEL))  # type: ignore[arg-type]
    assert label["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert {"moldau/spark/pack.py", "pyspark_moldau.py", "moldau/spark/log4j2.properties"} <= set(names)
    assert any(name.startswith("crc32c/") and name.endswith(".so") for name in names), "compiled modules too"
    assert not [name for name in names if name.startswith(("/", "..")) or "__pycache__" in name]
    assert [each.name for each in tmp_path.iterdir()] == ["packages.tar.gz"]


@pytest.mark.usefixtures("_small")
def test_the_settings_that_use_it(tmp_path: Path) -> None:
    file = tmp_path / "packages.tar.gz"
    make_pack(file)
    given = {"spark.archives": "other.zip", "spark.executorEnv.PYTHONPATH": "mine"}
    found = pack_settings(str(file), given)
    assert found["spark.archives"] == f"other.zip,file://{file}#{FOLDER}"
    assert found["spark.executorEnv.PYTHONPATH"] == f"{FOLDER}:mine"


def test_requirements_are_followed() -> None:
    assert "typing_extensions" in required(["aiokafka"])
    with pytest.raises(PackFailed, match="no-such-package is not installed"):
        required(["no-such-package"])


def test_packages_of_the_extra_are_installed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])  # nothing is installed
    with pytest.raises(PackFailed, match=r"pyarrow is not installed. Get it with: pip install '.\[spark\]'"):
        required(["pyarrow"])


@pytest.mark.usefixtures("_small")
def test_archives_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "packages.tar.gz"
    with pytest.raises(PackFailed, match=r"there is no archive .*moldau spark pack"):
        pack_settings(str(file), {})
    file.write_bytes(b"hello")
    with pytest.raises(PackFailed, match="cannot be read as an archive"):
        pack_settings(str(file), {})
    with tarfile.open(file, "w:gz") as archive:
        archive.add(__file__, "x.py")
    with pytest.raises(PackFailed, match="was not made by moldau spark pack"):
        pack_settings(str(file), {})
    monkeypatch.setattr(pack, "this_python", lambda: "3.99")
    make_pack(file)
    monkeypatch.undo()
    with pytest.raises(PackFailed, match=r"is for Python 3\.99, and this is Python 3\.\d+"):
        pack_settings(str(file), {})


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(PackFailed, match="cannot write"):
        make_pack(tmp_path / "nowhere" / "x.tar.gz")


def test_settings_of_ours() -> None:
    assert read_settings({"moldau.pack": "x", "moldau.start": 17})["moldau.start"] == "17"
    with pytest.raises(SparkUnavailable, match=r"moldau\.pakc is not a Spark setting"):
        read_settings({"moldau.pakc": "x"})
