"""Build hook of the package: compiles the hot rooms with mypyc. Without a C compiler the package is plain Python.

The modules are listed in `pyproject.toml`, under `tool.moldau.compile`. Their extensions go into a directory of
`build/`, with a digest of every source that they were compiled from: `moldau/compiled.py` loads them only if the
sources are still the same. A wheel has a copy, the package `moldau_compiled`. An editable installation compiles nothing
and uses what is in `build/`: `make compile` builds a wheel for that alone. `MOLDAU_COMPILE=0` switches compiling off.

As a script, this file compiles into a directory: `python hatch_build.py DIRECTORY`.
"""

import ast
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "src"
KEPT = ROOT / "build" / f"compiled-{sys.implementation.cache_tag}"
PACKAGE = "moldau_compiled"
GROUP = "moldau_hot"  # the library that all compiled modules share
SWITCH = "MOLDAU_COMPILE"
OPTIMIZATION = "2"  # 3 takes longer and makes nothing faster
# As strict as `make check`, but packages that a build environment lacks count as untyped.
MYPY = (
    "--config-file=",
    "--strict",
    "--ignore-missing-imports",
    "--allow-subclassing-any",
    "--implicit-reexport",
    "--no-warn-unused-ignores",
    "--no-warn-return-any",
)


# ── compiling ──


def compile_into(target: Path) -> None:
    """Compile the hot rooms; `target` then has extensions and manifest. SystemExit if that fails."""
    from mypyc.build import mypycify  # type: ignore[import-untyped, unused-ignore]

    sources = digests()
    os.chdir(SOURCES)  # tracebacks name a source by the path that is given here
    with tempfile.TemporaryDirectory() as work:
        extensions = mypycify(
            [*MYPY, f"--cache-dir={work}/mypy", *map(path_of, table()["modules"])],
            opt_level=OPTIMIZATION,
            debug_level="0",
            multi_file=True,  # so that all cores compile
            target_dir=work,
            group_name=GROUP,
        )
        files = build(extensions, Path(work), target)
    write_manifest(target, "", files, sources)


def build(extensions: list[Any], work: Path, target: Path) -> dict[str, str]:
    """Compile and link; the file of each extension by its module's name."""
    from distutils.ccompiler import new_compiler  # of setuptools, which mypyc has imported
    from distutils.sysconfig import customize_compiler

    compiler: Any = new_compiler()
    customize_compiler(compiler)
    compiler.add_include_dir(sysconfig.get_path("include"))

    def compiled(extension: Any, source: str) -> str:
        objects: list[str] = compiler.compile(
            [source],
            output_dir=str(work / "objects"),
            include_dirs=extension.include_dirs,
            macros=extension.define_macros,
            extra_postargs=extension.extra_compile_args,
        )
        return objects[0]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [(each, [pool.submit(compiled, each, source) for source in each.sources]) for each in extensions]
    files = {each.name: each.name + sysconfig.get_config_var("EXT_SUFFIX") for each in extensions}
    for extension, objects in jobs:
        compiler.link_shared_object([each.result() for each in objects], str(target / files[extension.name]))
    return files


def table() -> dict[str, list[str]]:
    """What `pyproject.toml` says about compiling."""
    found: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["moldau"]["compile"]
    return found


def path_of(name: str) -> str:
    return name.replace(".", "/") + ".py"


def digests() -> dict[str, str]:
    """Digests of the compiled modules and of the modules that they import, whose types they rely on."""
    compiled = [path_of(name) for name in table()["modules"]]
    paths = set(compiled)
    for path in compiled:
        for node in ast.walk(ast.parse((SOURCES / path).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                named = (node.module, *(f"{node.module}.{each.name}" for each in node.names))
                paths.update(path_of(each) for each in named if (SOURCES / path_of(each)).is_file())
    return {path: digest((SOURCES / path).read_bytes()) for path in sorted(paths)}


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def write_manifest(target: Path, reason: str, files: dict[str, str], sources: dict[str, str]) -> None:
    """`reason`: why nothing was compiled."""
    target.mkdir(parents=True, exist_ok=True)
    (target / "__init__.py").write_text(
        '"""Made when Moldau was installed: its compiled modules, and the digests of their sources."""\n\n'
        f"REASON = {reason!r}\nFILES = {files!r}\nSOURCES = {sources!r}\n"
    )


# ── installing ──


def prepare(target: Path) -> bool:
    """Fill `target` for an installation, with compiled modules or with the reason why there are none."""
    if os.environ.get(SWITCH) == "0":
        write_manifest(target, f"{SWITCH}=0 at installation", {}, {})
        return False
    compiled = refresh_kept()
    shutil.copytree(KEPT, target)
    return compiled


def refresh_kept() -> bool:
    """Compile unless the copy in `build/` is current. If that fails, the copy has nothing but the reason."""
    key = digest(repr((digests(), Path(__file__).read_text())).encode())
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory(dir=KEPT.parent) as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be compiling the same
        if (KEPT / "key").is_file() and (KEPT / "key").read_text() == key:
            return True
        made = Path(scratch) / "made"
        made.mkdir()
        failure = compile_apart(made)
        if failure is None:
            (made / "key").write_text(key)
        else:
            write_manifest(made, f"compiling failed: {failure}", {}, {})
        shutil.rmtree(KEPT, ignore_errors=True)
        made.rename(KEPT)
        return failure is None


def compile_apart(target: Path) -> str | None:
    """Compile in a process of its own, as mypyc ends the process on errors; what failed, in a line."""
    command = [sys.executable, str(Path(__file__).resolve()), str(target)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if not done.returncode:
        return None
    output = (done.stdout + done.stderr).strip()
    print(output, file=sys.stderr)
    return output.splitlines()[-1] if output else f"exit code {done.returncode}"


def hook() -> type:
    """The class that hatchling looks for, made here so that the script runs without hatchling."""
    from hatchling.builders.hooks.plugin.interface import (  # type: ignore[import-not-found, unused-ignore]
        BuildHookInterface,
    )

    class CompileHook(BuildHookInterface):  # type: ignore[misc, type-arg, unused-ignore]
        def dependencies(self) -> list[str]:
            """What a build needs besides hatchling. An installation for `make up` waits for none of it."""
            return [] if os.environ.get(SWITCH) == "0" else table()["requires"]

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            self.scratch = tempfile.mkdtemp()
            if version == "editable":
                return
            target = Path(self.scratch) / PACKAGE
            if prepare(target):
                build_data["pure_python"] = False
                build_data["infer_tag"] = True
            build_data["force_include"][str(target)] = PACKAGE

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            shutil.rmtree(self.scratch, ignore_errors=True)

    return CompileHook


if __name__ == "__main__":
    compile_into(Path(sys.argv[1]).resolve())
else:
    CompileHook = hook()
