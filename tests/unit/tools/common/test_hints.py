"""Suggested commands reach the same cluster, and show no password."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.tools.common.hints import remember, suggest
from moldau.tools.common.options import Shared, merge


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("MOLDAU_BOOTSTRAP", "MOLDAU_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("alice.properties").write_text("bootstrap.servers=h:9\nsasl.password=secret\n")
    profile = tmp_path / "moldau" / "prod.properties"
    profile.parent.mkdir()
    profile.touch(0o600)
    profile.write_text("bootstrap.servers=h:10\n")
    yield
    remember([], [])


def test_an_address_that_was_typed_is_repeated() -> None:
    assert merge(Shared(), "h:9", None, None).target.bootstrap == "h:9"
    assert suggest("topic list") == "moldau topic list -b h:9"
    merge(Shared(), None, None, ["bootstrap.servers=h:9"])
    assert suggest("topic list") == "moldau topic list -b h:9"


def test_one_that_is_found_anyway_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert merge(Shared(), None, None, None).target.bootstrap == "localhost:9092"
    assert suggest("topic list") == "moldau topic list"
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", "h:9")
    merge(Shared("h:9"), None, None, None)
    assert suggest("topic list") == "moldau topic list"


def test_files_and_profiles_are_repeated_without_what_is_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    target = merge(Shared(profile="prod"), None, None, ["@alice.properties", "client.id=x"]).target
    assert (target.bootstrap, target.properties) == ("h:9", {"sasl.password": "secret", "client.id": "x"})
    assert suggest("topic list") == "moldau --profile prod topic list -X @alice.properties"
    monkeypatch.setenv("MOLDAU_PROFILE", "prod")
    assert merge(Shared(profile="prod"), None, None, None).target.bootstrap == "h:10"
    assert suggest("topic list") == "moldau topic list"


def test_a_password_on_the_command_line_is_not_repeated() -> None:
    merge(Shared(properties=("sasl.password=secret",)), "h:9", None, ["sasl.username=alice"])
    assert suggest("topic list") == "moldau topic list -X sasl.username=alice -b h:9"
