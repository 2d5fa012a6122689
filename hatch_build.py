"""Build hook of the package: compiles the hot rooms with mypyc. Without a C compiler the package is plain Python.

The modules are listed in `pyproject.toml`, under `tool.moldau.compile`. Their extensions go into a package of their own,
`moldau_compiled`, with a digest of every source that they were compiled from: `moldau/compiled.py` loads them only if
the sources are still the same. A copy stays in `build/`, and the next installation of the same sources takes it from
there. `MOLDAU_COMPILE=0` switches compiling off.

As a script, this file compiles into a directory: `python hatch_build.py DIRECTORY`.
"""

import ast
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
            [*MYPY, f"--cache-dir={work}/mypy", *map(path_of, modules())],
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


def modules() -> list[str]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed: list[str] = table["tool"]["moldau"]["compile"]["modules"]
    return listed


def path_of(name: str) -> str:
    return name.replace(".", "/") + ".py"


def digests() -> dict[str, str]:
    """Digests of the compiled modules and of the modules that they import, whose types they rely on."""
    compiled = [path_of(name) for name in modules()]
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
    failure = refresh_kept()
    if failure is None:
        shutil.copytree(KEPT, target)
        return True
    write_manifest(target, f"compiling failed at installation: {failure}", {}, {})
    return False


def refresh_kept() -> str | None:
    """Compile in a process of its own unless the copy in `build/` is current; what failed, in a line."""
    key, key_file = digest(repr((digests(), Path(__file__).read_text())).encode()), KEPT / "key"
    if key_file.is_file() and key_file.read_text() == key:
        return None
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    command = [sys.executable, str(Path(__file__).resolve()), str(KEPT)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        output = (done.stdout + done.stderr).strip()
        print(output, file=sys.stderr)
        return output.splitlines()[-1] if output else f"exit code {done.returncode}"
    key_file.write_text(key)
    return None


def hook() -> type:
    """The class that hatchling looks for, made here so that the script runs without hatchling."""
    from hatchling.builders.hooks.plugin.interface import (  # type: ignore[import-not-found, unused-ignore]
        BuildHookInterface,
    )

    class CompileHook(BuildHookInterface):  # type: ignore[misc, type-arg, unused-ignore]
        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            self.scratch = tempfile.mkdtemp()
            target = Path(self.scratch) / PACKAGE
            if prepare(target):
                build_data["pure_python"] = False
                build_data["infer_tag"] = True
            build_data["force_include_editable" if version == "editable" else "force_include"][str(target)] = PACKAGE

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            shutil.rmtree(self.scratch, ignore_errors=True)

    return CompileHook


if __name__ == "__main__":
    compile_into(Path(sys.argv[1]).resolve())
else:
    CompileHook = hook()
