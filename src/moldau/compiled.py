"""Compiled modules: loads the hot rooms as C extensions, if compiled from these very sources. Compiles nothing.

`hatch_build.py` compiles them: in a checkout for `make compile`, into a directory of `build/`; otherwise when Moldau is
installed, into the package `moldau_compiled`. They share one library, so they are used all together or not at all: if
one source has changed since, all of them run as Python.
"""

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

SWITCH = "MOLDAU_COMPILE"  # 0: run everything as Python
DIGEST_SIZE = 16
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # what the paths of sources are relative to
MADE_HERE = os.path.join(os.path.dirname(ROOT), "build", f"compiled-{sys.implementation.cache_tag}")  # in a checkout


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


def _found() -> CompiledModules:
    if os.environ.get(SWITCH) == "0":
        return CompiledModules("", {}, {}, f"{SWITCH}=0")
    manifest = _made_here() or _installed()
    if manifest is None:
        return CompiledModules("", {}, {}, "no compiled modules yet; in a checkout, make compile makes them")
    return CompiledModules(os.path.dirname(manifest.__file__ or ""), manifest.FILES, manifest.SOURCES, manifest.REASON)


def _made_here() -> ModuleType | None:
    spec = spec_from_file_location("moldau_made_here", os.path.join(MADE_HERE, "__init__.py"))
    if spec is None or spec.loader is None:
        return None
    manifest = module_from_spec(spec)
    try:
        spec.loader.exec_module(manifest)
    except FileNotFoundError:
        return None
    return manifest


def _installed() -> ModuleType | None:
    try:
        import moldau_compiled  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return None
    manifest: ModuleType = moldau_compiled
    return manifest if manifest.__file__ else None  # no file: an empty directory that an older installation left


modules = _found()


def describe() -> str:
    """Whether the hot rooms are compiled, in words for `moldau --version` and the start line."""
    return f"not compiled: {modules.reason}" if modules.reason else "compiled"


# Imports find the compiled modules first. Done by importing this module, which the package does before anything else.
sys.meta_path.insert(0, modules)
