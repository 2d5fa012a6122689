"""A pipeline's file: loaded as a module of its own, with its `main(spark)` looked at before Spark is started."""

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from moldau.spark.pipelines.places import PipelineFailed
from moldau.spark.pipelines.wording import of_exception

Main = Callable[[Any], Any]
MODULE = "moldau_pipeline_file"  # never imported by anybody else: Spark sends what is in it by value
EXAMPLE = "def main(spark): …"


def load_main(file: str, arguments: Sequence[str]) -> tuple[Main, ModuleType]:
    """The file's `main`; PipelineFailed with the line if the file cannot be loaded or has none."""
    path = Path(file).expanduser().absolute()
    _check_file(path)
    _see_beside(path.parent)
    sys.argv = [str(path), *arguments]
    spec = importlib.util.spec_from_loader(MODULE, importlib.machinery.SourceFileLoader(MODULE, str(path)))
    if spec is None or spec.loader is None:
        raise PipelineFailed(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as wrong:
        where = f"line {wrong.lineno}" if wrong.filename == str(path) else f"{wrong.filename}, line {wrong.lineno}"
        raise PipelineFailed(f"{path} is not valid Python: {wrong.msg} ({where})") from wrong
    except (Exception, SystemExit) as failed:
        raise PipelineFailed(f"{path} cannot be loaded: {of_exception(failed, str(path))}") from failed
    return _main_of(module, path), module


def _check_file(path: Path) -> None:
    try:
        text = path.read_bytes()
    except IsADirectoryError:
        raise PipelineFailed(f"{path} is a directory. Name a Python file with a main(spark)") from None
    except OSError as failed:
        raise PipelineFailed(f"cannot read {path}: {failed.strerror}") from failed
    if b"\0" in text:
        raise PipelineFailed(f"{path} is not a Python file")


def _see_beside(folder: Path) -> None:
    """Modules beside the file can be imported, by the file and by Python workers on this machine."""
    sys.path.insert(0, str(folder))
    inherited = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(each for each in (str(folder), inherited) if each)


def _main_of(module: ModuleType, path: Path) -> Main:
    main: Main | None = getattr(module, "main", None)
    if main is None:
        raise PipelineFailed(f"{path} has no main(spark). Give it one: {EXAMPLE}")
    if not callable(main):
        raise PipelineFailed(f"main in {path} is not a function. Write it as: {EXAMPLE}")
    try:
        inspect.signature(main).bind(object())
    except (TypeError, ValueError):
        raise PipelineFailed(f"main in {path} must take one argument, the session: {EXAMPLE}") from None
    if inspect.iscoroutinefunction(main):
        raise PipelineFailed(f"main in {path} must be a plain function, not async: {EXAMPLE}")
    return main
