"""`moldau certs create`: the files it makes, their use, and what it refuses."""

import ssl
import stat
from pathlib import Path

import pytest

from moldau.tools.main import run


def test_files_are_private_and_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = tmp_path / "certs"
    assert run(["certs", "create", str(where), "--host", "box.example", "--client", "alice", "--client", "bob"]) == 0
    assert sorted(path.name for path in where.iterdir()) == ["alice.pem", "bob.pem", "broker.pem", "ca.key", "ca.pem"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in where.iterdir()} == {0o600}
    said = capsys.readouterr().out
    assert "for tests and laptops" in said
    assert f"ssl.keystore.location={where / 'broker.pem'}" in said
    context = ssl.create_default_context(cafile=str(where / "ca.pem"))
    for name in ("broker", "alice", "bob"):
        context.load_cert_chain(where / f"{name}.pem")


def test_files_that_are_there_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certs", "create", str(tmp_path)]) == 0
    before = (tmp_path / "ca.pem").read_bytes()
    assert run(["certs", "create", str(tmp_path), "--rsa"]) == 1
    assert "ca.pem is there already" in capsys.readouterr().err
    assert (tmp_path / "ca.pem").read_bytes() == before


@pytest.mark.parametrize("name", ["", "a/b", "ca", "broker"])
def test_names_that_are_no_files(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certs", "create", str(tmp_path), "--client", name]) == 2
    assert "cannot be the name of a file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run(["certs", "create", str(tmp_path / "file" / "x")]) == 1
    assert "cannot write to" in capsys.readouterr().err
