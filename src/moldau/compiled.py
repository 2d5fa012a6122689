"""Compiled modules: loads the hot rooms as C extensions, if compiled from these very sources. Compiles nothing.

`hatch_build.py` compiles them when Moldau is installed, into the package `moldau_compiled`. They share one library, so
they are used all together or not at all: if one source has changed since, all of them run as Python.
"""

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

SWITCH = "MOLDAU_COMPILE"  # 0: run everything as Python
DIGEST_SIZE = 16
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # what the paths of sources are relative to


def _read(path: str) -> bytes:
    with open(os.path.join(ROOT, path), "rb") as source:
        return source.read()


class _Loader(ExtensionFileLoader):
    """Knows the source, so that tracebacks show its lines."""

    def get_source(self, fullname: str) -> str | None:  # type: ignore[override]
        try:
            return _read(fullname.replace(".", "/") + ".py").decode()
        except OSError:
            return None


class CompiledModules:
    """Finds the compiled modules for Python's import system, in front of the files beside this one."""

    def __init__(self, directory: str, files: Mapping[str, str], sources: Mapping[str, str], reason: str) -> None:
        self._directory = directory
        self._files = files
        self._sources = sources
        self._reason: str | None = reason or None  # None: the sources were not compared yet

    @property
    def reason(self) -> str:
        """Why the hot rooms run as Python; empty if they are compiled."""
        if self._reason is None:
            self._reason = self._difference()
        return self._reason

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(name)
        if file is None or self.reason:
            return None
        extension = os.path.join(self._directory, file)
        return spec_from_file_location(name, extension, loader=_Loader(name, extension))

    def _difference(self) -> str:
        if not all(file.endswith(EXTENSION_SUFFIXES[0]) for file in self._files.values()):
            return "they were compiled for another version of Python"
        for path, digest in self._sources.items():
            try:
                found = hashlib.blake2b(_read(path), digest_size=DIGEST_SIZE).hexdigest()
            except OSError:
                found = ""
            if found != digest:
                return f"{path} has changed since it was compiled; install Moldau again, or run make compile"
        return ""


def _installed() -> CompiledModules:
    if os.environ.get(SWITCH) == "0":
        return CompiledModules("", {}, {}, f"{SWITCH}=0")
    try:
        import moldau_compiled as found  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return CompiledModules("", {}, {}, "nothing was compiled at installation")
    return CompiledModules(os.path.dirname(found.__file__), found.FILES, found.SOURCES, found.REASON)


modules = _installed()


def describe() -> str:
    """Whether the hot rooms are compiled, in words for `moldau --version` and the start line."""
    return f"not compiled: {modules.reason}" if modules.reason else "compiled"


# Imports find the compiled modules first. Done by importing this module, which the package does before anything else.
sys.meta_path.insert(0, modules)
