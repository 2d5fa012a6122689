"""`moldau spark pack`: an archive of the packages that executors need, and the settings that make Spark use it.

Spark does not unpack --py-files, and compiled modules do not load from a zip file. It unpacks `spark.archives` beside
each executor. The archive has packages and no interpreter: workers run their own Python, of the same minor version and
platform.
"""

import importlib.metadata
import importlib.util
import io
import json
import os
import re
import shutil
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import moldau
from moldau.spark.versions import INSTALL

FOLDER = "moldau-packages"  # directory of the unpacked archive
LABEL = "moldau-pack.json"  # in the archive: its Python and platform
MAX_LABEL_BYTES = 1 << 16
DEFAULT_FILE = "moldau-packages.tar.gz"
OWN_MODULES = ("moldau", "pyspark_moldau")
# Imported by tasks and by Spark's workers. Their requirements are added; PySpark comes with the cluster.
ROOTS = ("aiokafka", "cramjam", "crc32c", "pandas", "protobuf", "pyarrow")
EXCLUDED = re.compile(r"(?:^|/)(?:__pycache__|tests?|include)(?:/|$)|\.(?:pyc|pyx|pxd|pxi|h|hpp|a|lib)$")
REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)")
FASTEST = 1  # gzip level: higher levels hardly shrink compiled modules


class PackFailed(Exception):
    """An archive cannot be made or used: one sentence with the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A new archive: its file, packages with versions, and size in bytes."""

    file: Path
    packages: Mapping[str, str]
    size: int


def this_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def make_pack(file: Path, also: Iterable[str] = ()) -> Packed:
    """Write the archive; `also` has more packages that functions of a pipeline import."""
    packages = required((*ROOTS, *also))
    label = {"python": this_python(), "platform": sysconfig.get_platform(), "packages": packages}
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with tarfile.open(unfinished, "w:gz", compresslevel=FASTEST) as archive:
            _add_label(archive, label)
            for path, name in _own_files():
                archive.add(path, name, recursive=False)
            for package in packages:
                for path, name in _files_of(package):
                    archive.add(path, name, recursive=False)
        unfinished.replace(file)
    except OSError as failed:
        raise PackFailed(f"cannot write {file}: {failed.strerror or failed}") from failed
    finally:
        unfinished.unlink(missing_ok=True)
    return Packed(file, {"moldau": moldau.__version__, **packages}, file.stat().st_size)


def required(names: Iterable[str]) -> dict[str, str]:
    """These packages and their installed requirements, with versions."""
    found: dict[str, str] = {}
    waiting = [(name, True) for name in names]
    while waiting:
        name, must = waiting.pop()
        try:
            distribution = importlib.metadata.distribution(name)
        except (importlib.metadata.PackageNotFoundError, ValueError):
            if must:
                remedy = INSTALL if name in ROOTS else f"pip install {name}"
                raise PackFailed(f"{name} is not installed. Get it with: {remedy}") from None
            continue
        name = str(distribution.metadata["Name"])
        if name not in found:
            found[name] = distribution.version
            waiting += [(each, False) for each in _requirements(distribution.requires or ())]
    return dict(sorted(found.items()))


def _requirements(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        match = REQUIREMENT.match(line)
        if match and "extra" not in line.partition(";")[2]:
            yield match[1]


def _own_files() -> Iterator[tuple[Path, str]]:
    for module in OWN_MODULES:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise PackFailed(f"the module {module} is not installed as files and cannot be packed")
        origin = Path(spec.origin)
        if not spec.submodule_search_locations:
            yield origin, origin.name
            continue
        for path in sorted(origin.parent.rglob("*")):
            name = f"{module}/{path.relative_to(origin.parent).as_posix()}"
            if path.is_file() and not EXCLUDED.search(name):
                yield path, name


def _files_of(package: str) -> Iterator[tuple[Path, str]]:
    distribution = importlib.metadata.distribution(package)
    if distribution.files is None:
        raise PackFailed(f"{package} has no list of its files. Install it with pip")
    for each in distribution.files:
        name = PurePosixPath(each)
        path = Path(str(distribution.locate_file(each)))
        outside = name.is_absolute() or ".." in name.parts  # scripts of this environment
        if not outside and not EXCLUDED.search(str(name)) and path.is_file():
            yield path, str(name)


def _add_label(archive: tarfile.TarFile, label: Mapping[str, object]) -> None:
    """First in the archive, so that it can be read without unpacking the rest."""
    text = json.dumps(label, indent=2).encode()
    entry = tarfile.TarInfo(LABEL)
    entry.size = len(text)
    archive.addfile(entry, io.BytesIO(text))


def pack_settings(file: str, given: Mapping[str, str]) -> dict[str, str]:
    """Spark settings that make executors use the archive, merged with the given ones."""
    path = Path(file).expanduser().resolve()
    _check_label(path)
    archives = [each for each in given.get("spark.archives", "").split(",") if each]
    paths = [FOLDER, given.get("spark.executorEnv.PYTHONPATH", "")]
    return {
        "spark.archives": ",".join([*archives, f"{path.as_uri()}#{FOLDER}"]),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(each for each in paths if each),
    }


def worker_python() -> str:
    """Command of the workers' Python. The driver's Python workers use the same one: see use_name()."""
    return f"python{this_python()}"


def use_name() -> None:
    """Put this interpreter first on PATH: Spark starts Python workers of driver and executors by the same command."""
    folder = str(Path(sys.executable).parent)
    found = shutil.which(worker_python(), path=folder)
    if found is None:
        raise PackFailed(f"there is no {worker_python()} beside {sys.executable}. Use a virtual environment (venv)")
    os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", "")])


def _check_label(path: Path) -> None:
    anew = "Make one with: moldau spark pack"
    try:
        with tarfile.open(path, "r:gz") as archive:
            first = archive.next()
            held = archive.extractfile(first) if first is not None and first.name == LABEL else None
            label = json.loads(held.read(MAX_LABEL_BYTES)) if held is not None else None
    except FileNotFoundError:
        raise PackFailed(f"there is no archive {path}. {anew}") from None
    except (OSError, tarfile.TarError, EOFError, ValueError) as failed:
        raise PackFailed(f"{path} cannot be read as an archive ({failed}). {anew}") from failed
    if not isinstance(label, dict):
        raise PackFailed(f"{path} was not made by moldau spark pack. {anew}")
    for what, here in (("python", this_python()), ("platform", sysconfig.get_platform())):
        if label.get(what) != here:
            name = "Python " if what == "python" else ""
            raise PackFailed(f"{path} is for {name}{label.get(what)}, and this is {name}{here}. {anew}")
