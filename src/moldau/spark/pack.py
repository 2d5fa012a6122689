"""`moldau spark pack`: an archive of the packages that executors need, and the settings that make Spark use it.

Spark puts Python files that it is given (--py-files) on the path as they are, often inside a zip, and compiled modules
do not load from one. An archive (`spark.archives`) it unpacks beside each executor, and from there they load. It has
packages and no interpreter: workers run their own Python, of the same minor version and for the same platform.
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

FOLDER = "moldau-packages"  # what the archive is called where it is unpacked
LABEL = "moldau-pack.json"  # in the archive: for which Python and platform it is
MAX_LABEL_BYTES = 1 << 16
DEFAULT_FILE = "moldau-packages.tar.gz"
OWN_MODULES = ("moldau", "pyspark_moldau")
# What our source and sink import in a task, and Spark's workers beside them. The rest follows from their requirements;
# PySpark comes with the cluster.
ROOTS = ("aiokafka", "cramjam", "crc32c", "pandas", "protobuf", "pyarrow")
EXCLUDED = re.compile(r"(?:^|/)(?:__pycache__|tests?|include)(?:/|$)|\.(?:pyc|pyx|pxd|pxi|h|hpp|a|lib)$")
REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)")
FASTEST = 1  # of gzip's levels: compiled modules hardly get smaller with more


class PackFailed(Exception):
    """No archive can be made, or one cannot be used: one sentence why, and what to do."""


@dataclass(frozen=True, slots=True)
class Packed:
    """An archive that was made: where, from which packages with their versions, how large."""

    file: Path
    packages: Mapping[str, str]
    size: int


def this_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def make_pack(file: Path, also: Iterable[str] = ()) -> Packed:
    """Write the archive; `also` names more packages that a pipeline's functions import."""
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
    """These packages and what they require, with versions. A requirement that is not installed is for others."""
    found: dict[str, str] = {}
    waiting = [(name, True) for name in names]
    while waiting:
        name, must = waiting.pop()
        try:
            distribution = importlib.metadata.distribution(name)
        except (importlib.metadata.PackageNotFoundError, ValueError):
            if must:
                raise PackFailed(f"{name} is not installed. Get it with: pip install {name}") from None
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
            raise PackFailed(f"the module {module} is not installed as files, so it cannot be packed")
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
        raise PackFailed(f"{package} does not say which files it has. Install it with pip")
    for each in distribution.files:
        name = PurePosixPath(each)
        path = Path(str(distribution.locate_file(each)))
        outside = name.is_absolute() or ".." in name.parts  # scripts, which are for this environment
        if not outside and not EXCLUDED.search(str(name)) and path.is_file():
            yield path, str(name)


def _add_label(archive: tarfile.TarFile, label: Mapping[str, object]) -> None:
    """First in the archive, so that reading it does not unpack the rest."""
    text = json.dumps(label, indent=2).encode()
    entry = tarfile.TarInfo(LABEL)
    entry.size = len(text)
    archive.addfile(entry, io.BytesIO(text))


def pack_settings(file: str, given: Mapping[str, str]) -> dict[str, str]:
    """The settings of Spark with which executors use an archive, beside those that are given."""
    path = Path(file).expanduser().resolve()
    _check_label(path)
    archives = [each for each in given.get("spark.archives", "").split(",") if each]
    paths = [FOLDER, given.get("spark.executorEnv.PYTHONPATH", "")]
    return {
        "spark.archives": ",".join([*archives, f"{path.as_uri()}#{FOLDER}"]),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(each for each in paths if each),
    }


def worker_python() -> str:
    """The command that starts the workers' Python. The driver's own processes run by the same name: see use_name()."""
    return f"python{this_python()}"


def use_name() -> None:
    """Make that command name this interpreter here: Spark starts workers of the driver and of executors alike by it."""
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
