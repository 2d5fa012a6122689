"""Load a pipeline's file as a module, and check its `main(spark)` before Spark starts."""

import importlib.machinery
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import moldau
from moldau.spark.pipelines.directory import absolute
from moldau.spark.pipelines.errors import PipelineFileError
from moldau.spark.pipelines.root_cause import describe_exception
from moldau.spark.versions import INSTALL

Main = Callable[[Any], Any]
Load = Callable[[str, Sequence[str]], Main]  # of a file and its arguments; raises PipelineFileError
MODULE = "moldau_pipeline_file"  # a name that no import finds by accident
EXAMPLE = "def main(spark): …"


def load_main(file: str, arguments: Sequence[str]) -> Main:
    """The file's `main`; raises PipelineFileError, with the line where it can."""
    return _checked_main(load_module(file, arguments), absolute(file))


def load_module(file: str, arguments: Sequence[str]) -> ModuleType:
    """The file as a module; raises PipelineFileError, with the line where it can."""
    path = absolute(file)
    _check_file(path)
    sys.path.append(str(path.parent))  # last, or a file called copy.py would hide Python's own module
    sys.argv = [str(path), *arguments]
    spec = importlib.util.spec_from_loader(MODULE, importlib.machinery.SourceFileLoader(MODULE, str(path)))
    if spec is None or spec.loader is None:
        raise PipelineFileError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as wrong:
        where = f"line {wrong.lineno}" if wrong.filename == str(path) else f"{wrong.filename}, line {wrong.lineno}"
        raise PipelineFileError(f"{path} is not valid Python: {wrong.msg} ({where})") from wrong
    except (Exception, SystemExit) as failed:
        if isinstance(failed, ModuleNotFoundError) and (failed.name or "").partition(".")[0] == "pyspark":
            raise PipelineFileError(f"{path} needs PySpark, which is not installed. Get it with: {INSTALL}") from failed
        raise PipelineFileError(f"{path} cannot be loaded: {describe_exception(failed, str(path))}") from failed
    return module


def _check_file(path: Path) -> None:
    try:
        text = path.read_bytes()
    except IsADirectoryError:
        raise PipelineFileError(f"{path} is a directory. Name a Python file") from None
    except OSError as failed:
        raise PipelineFileError(f"cannot read {path}: {failed.strerror}") from failed
    if b"\0" in text:
        raise PipelineFileError(f"{path} is not a Python file")


def modules_of(file: str) -> list[ModuleType]:
    """The file's module and those it imported from its own directory. Python workers cannot import them."""
    folder = absolute(file).parent
    found = []
    for module in list(sys.modules.values()):
        source = getattr(module, "__file__", None)
        if source is not None and Path(source).is_relative_to(folder) and not _is_installed(Path(source)):
            found.append(module)
    return found


def _is_installed(path: Path) -> bool:
    """Tell whether a module belongs to an installed package, Moldau or Python itself."""
    installed = [*sysconfig.get_paths().values(), str(Path(moldau.__file__).parent)]
    return any(path.is_relative_to(folder) for folder in installed)


def _checked_main(module: ModuleType, path: Path) -> Main:
    main: Main | None = getattr(module, "main", None)
    if main is None:
        raise PipelineFileError(f"{path} has no main(spark). Give it one: {EXAMPLE}")
    if not callable(main):
        raise PipelineFileError(f"main in {path} is not a function. Write it as: {EXAMPLE}")
    try:
        inspect.signature(main).bind(object())
    except (TypeError, ValueError):
        raise PipelineFileError(f"main in {path} must take one argument, the session: {EXAMPLE}") from None
    if inspect.iscoroutinefunction(main):
        raise PipelineFileError(f"main in {path} must be a plain function, not async: {EXAMPLE}")
    return main
