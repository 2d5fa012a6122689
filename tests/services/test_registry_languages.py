"""The registry with clients of other languages: franz-go's, and the one of npm."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.clients.go import WITHOUT_GO
from support.services.registry import RegistryProcess

HERE = Path(__file__).parent
GO = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
NODE, NPM = shutil.which("node"), shutil.which("npm")
OFFLINE = ("dial tcp", "go.mod requires go", "toolchain", "ENOTFOUND", "ETIMEDOUT", "ECONNREFUSED", "EAI_AGAIN")
INSTALL_S = 200


def tried(command: list[str], directory: Path) -> None:
    """Build or install something; skip the test if it cannot be downloaded."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode and any(hint in done.stderr for hint in OFFLINE):
        pytest.skip(f"{command[0]} cannot download its packages here: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr


def output(command: list[str], directory: Path) -> dict[str, object]:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@WITHOUT_GO
def test_franz_go(registry: RegistryProcess, subject: str, tmp_path: Path) -> None:
    program = tmp_path / "client"
    tried([str(GO), "build", "-buildvcs=false", "-o", str(program), "."], HERE / "go")
    found = output([str(program), registry.url, subject], tmp_path)
    assert found["again"] == found["id"]
    assert '"name":"Order"' in str(found["schema"])
    del found["id"], found["again"], found["schema"]
    assert found == {"version": 1, "compatible": False, "refused": 40901, "level": "FULL", "deleted": [1]}


@pytest.mark.skipif(NODE is None or NPM is None, reason="node is not installed; on Debian: apt-get install npm")
def test_npm(registry: RegistryProcess, subject: str) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau" / "npm"
    cache.mkdir(parents=True, exist_ok=True)
    wanted = (HERE / "npm" / "package.json").read_text()
    installed = cache / "package.json"
    if not (installed.exists() and installed.read_text() == wanted and (cache / "node_modules").is_dir()):
        installed.write_text(wanted)
        tried([str(NPM), "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"], cache)
    shutil.copy(HERE / "npm" / "client.js", cache)
    found = output([str(NODE), "client.js", registry.url, subject], cache)
    assert found["latest"] == found["id"]
    assert found["decoded"] == {"id": 7}
    assert found["proto"] == 9
