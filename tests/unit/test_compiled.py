"""Compiled modules are used if and only if they were compiled from the sources that are there."""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moldau import compiled
from support.repository.sources import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HOT = "moldau.wire.frames"
SUFFIX = compiled.EXTENSION_SUFFIXES[0]


def modules_of(tmp_path: Path, source: bytes, file: str = f"x{SUFFIX}") -> compiled.CompiledModules:
    digest = hashlib.blake2b(source, digest_size=compiled.DIGEST_SIZE).hexdigest()
    return compiled.CompiledModules(str(tmp_path), {HOT: file}, {"moldau/wire/frames.py": digest}, "")


def test_the_same_source_is_found_compiled(tmp_path: Path) -> None:
    modules = modules_of(tmp_path, (ROOT / "src/moldau/wire/frames.py").read_bytes())
    assert modules.reason == ""
    spec = modules.find_spec(HOT)
    assert spec is not None
    assert spec.origin == str(tmp_path / f"x{SUFFIX}")
    assert modules.find_spec("moldau.wire.codec") is None
    loader = spec.loader
    assert loader is not None
    assert "class FrameDecoder" in (loader.get_source(HOT) or "")  # type: ignore[attr-defined]


def test_an_edited_source_runs_as_python(tmp_path: Path) -> None:
    modules = modules_of(tmp_path, b"print('older')")
    assert "moldau/wire/frames.py has changed" in modules.reason
    assert modules.find_spec(HOT) is None


def test_extensions_of_another_python_are_not_loaded(tmp_path: Path) -> None:
    source = (ROOT / "src/moldau/wire/frames.py").read_bytes()
    modules = modules_of(tmp_path, source, "x.cpython-30-somewhere.so")
    assert "another version of Python" in modules.reason
    assert modules.find_spec(HOT) is None


def test_a_switch_turns_it_off() -> None:
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            "import moldau, moldau.wire.frames as f; print(moldau.compiled.describe(), f.__file__)",
        ],
        env={**os.environ, compiled.SWITCH: "0", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.startswith("not compiled: MOLDAU_COMPILE=0 ")
    assert told.strip().endswith("frames.py")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one small hot module, built as this one is."""
    pytest.importorskip("mypyc")
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.moldau.compile]\nmodules = ["moldau.small"]\n')
    package = tmp_path / "src" / "moldau"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "other.py").write_text("LIMIT: int = 3\n")
    (package / "small.py").write_text(
        "from moldau.other import LIMIT\n\n\ndef double(number: int) -> int:\n    return number * 2 + LIMIT\n"
    )
    return tmp_path


def prepare(project: Path, target: str = "installed", **environment: str) -> str:
    """What an installation would get: the manifest."""
    code = (
        "import sys; sys.modules['__main__'].__name__ = 'build'\n"
        f"source = open({str(project / 'hatch_build.py')!r}).read().replace('CompileHook = hook()', 'pass')\n"
        f"names = {{'__name__': 'build', '__file__': {str(project / 'hatch_build.py')!r}}}\n"
        "exec(compile(source, 'hatch_build.py', 'exec'), names)\n"
        "real = names['compile_apart']\n"
        "names['compile_apart'] = lambda target: open('compiled', 'a').write('once ') and real(target)\n"
        f"names['prepare'](names['Path']({str(project / target)!r}))\n"
    )
    shutil.rmtree(project / target, ignore_errors=True)
    env = {**os.environ, compiled.SWITCH: "1", **environment}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, capture_output=True, cwd=project)
    return (project / target / "__init__.py").read_text()


def kept(project: Path) -> str:
    """The manifest that an editable installation of the project finds."""
    return (project / "build" / f"compiled-{sys.implementation.cache_tag}" / "__init__.py").read_text()


def test_an_installation_without_a_compiler_is_plain_python(project: Path) -> None:
    manifest = prepare(project, CC="/nonexistent/cc", PATH=os.path.dirname(sys.executable))
    assert "compiling failed: " in manifest
    assert "FILES = {}" in manifest
    assert kept(project) == manifest, "an editable installation says why as well"
    assert "MOLDAU_COMPILE=0 at installation" in prepare(project, MOLDAU_COMPILE="0")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler, e.g. apt-get install gcc")
def test_a_compiled_module_answers_like_its_source(project: Path) -> None:
    with ThreadPoolExecutor(2) as pool:  # as `make test` while the compiling of the first `make up` is not over
        manifest, same = pool.map(lambda target: prepare(project, target), ("installed", "again"))
    assert manifest == same
    assert (project / "compiled").read_text() == "once "
    assert "REASON = ''" in manifest
    assert "moldau/small.py" in manifest
    assert "moldau/other.py" in manifest, "the types of what it imports count too"
    code = "import moldau.small as s; print(s.double(20), s.__file__)"
    shutil.copy(ROOT / "src/moldau/compiled.py", project / "src/moldau/compiled.py")
    (project / "src/moldau/__init__.py").write_text("from moldau import compiled as compiled\n")
    (project / "installed").rename(project / "src/moldau_compiled")
    env = {**os.environ, compiled.SWITCH: "1", "PYTHONPATH": str(project / "src")}
    run = [sys.executable, "-c", code]
    fast = subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout
    assert fast.startswith("43 ")
    assert fast.strip().endswith(SUFFIX)
    assert str(project / "build") in fast, "in a checkout, what is compiled there"
    shutil.rmtree(project / "build")
    installed = subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout
    assert installed.startswith("43 ")
    assert "moldau_compiled" in installed
    (project / "src/moldau/small.py").write_text("def double(number: int) -> int:\n    return -1\n")
    edited = subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout
    assert edited.startswith("-1 "), "an edited file is never shadowed"


def test_the_compiler_is_the_one_that_checks_types() -> None:
    """One version of mypy: what `make check` accepts compiles."""
    needed = [each for each in PROJECT["tool"]["moldau"]["compile"]["requires"] if each.startswith("mypy")]
    pinned = [each for each in PROJECT["project"]["optional-dependencies"]["dev"] if each.startswith("mypy")]
    assert [each.replace("[mypyc]", "") for each in needed] == pinned


def test_every_listed_module_exists() -> None:
    for name in PROJECT["tool"]["moldau"]["compile"]["modules"]:
        assert (ROOT / "src" / f"{name.replace('.', '/')}.py").is_file(), name


def test_what_an_older_installation_left_is_no_compiled_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "moldau_compiled" / "__pycache__").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "moldau_compiled", raising=False)
    assert compiled._installed() is None
