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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "cannot be a file's name"),
        ("a/b", "cannot be a file's name"),
        ("ca", "is taken"),
        ("broker", "is taken"),
        ("a" * 65, "more than 64 characters"),
    ],
)
def test_names_that_are_no_files(tmp_path: Path, name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certs", "create", str(tmp_path), "--client", name]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("host", ["", "not a host", "h" * 254, "a/b"])
def test_hosts_that_are_none(tmp_path: Path, host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certs", "create", str(tmp_path / "certs"), "--host", host]) == 2
    assert "is not a host name or an address" in capsys.readouterr().err
    assert not (tmp_path / "certs").exists()


def test_a_long_host_name(tmp_path: Path) -> None:
    """A common name has 64 characters at most; clients look at the alternative names."""
    assert run(["certs", "create", str(tmp_path), "--host", f"{'h' * 60}.example.com"]) == 0


def test_a_directory_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run(["certs", "create", str(tmp_path / "file" / "x")]) == 1
    assert "cannot write to" in capsys.readouterr().err
