"""Config providers: placeholders in settings, and every way in which one has no value."""

from pathlib import Path

import pytest

from moldau.base.properties import read_properties
from moldau.base.settings import SettingsRefused
from moldau.broker.config_providers import PACKAGE, resolve


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "db.properties").write_text("password=hush\nempty=\n", encoding="utf-8")
    (tmp_path / "key").write_text("-----KEY\nline\n", encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    return tmp_path


def test_placeholders_get_values(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLDAU_TEST_RACK", "r1")
    text = (
        "config.providers=file, env,directory\n"
        f"ssl.key.password=${{file:{secrets}/db.properties:password}}\n"
        f"ssl.keystore.key=${{directory:{secrets}:key}}\n"
        "broker.rack=dc-${env:MOLDAU_TEST_RACK}-${env:MOLDAU_TEST_RACK}\n"
        f"ssl.protocol=${{file:{secrets}/db.properties:empty}}TLSv1.3\n"
    )
    found = resolve(read_properties(text, "server.properties"))
    assert dict(found) == {
        "config.providers": "file, env,directory",
        "ssl.key.password": "hush",
        "ssl.keystore.key": "-----KEY\nline\n",
        "broker.rack": "dc-r1-r1",
        "ssl.protocol": "TLSv1.3",
    }
    assert found.place("ssl.key.password") == "server.properties:2", "errors still name the line"  # type: ignore[attr-defined]


def test_without_providers_placeholders_are_text() -> None:
    assert resolve({"broker.rack": "${env:HOME}"}) == {"broker.rack": "${env:HOME}"}


def test_a_value_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLDAU_TEST_RACK", "${env:HOME}")
    found = resolve({"config.providers": "env", "broker.rack": "${env:MOLDAU_TEST_RACK}"})
    assert found["broker.rack"] == "${env:HOME}"


def test_kafkas_class_names_and_parameters(secrets: Path) -> None:
    own = {
        "config.providers": "vault",
        "config.providers.vault.class": f"{PACKAGE}FileConfigProvider",
        "config.providers.vault.param.allowed.paths": f"/nowhere,{secrets}",
        "broker.rack": f"${{vault:{secrets}/db.properties:password}}",
    }
    assert resolve(own) == {"config.providers": "vault", "broker.rack": "hush"}


@pytest.mark.parametrize(
    ("placeholder", "reason"),
    [
        ("${file:DIR/db.properties:user}", "DIR/db.properties has no key user"),
        ("${file:DIR/missing:user}", "cannot read DIR/missing: No such file or directory"),
        ("${file:DIR/binary:user}", "DIR/binary is not text in UTF-8"),
        ("${directory:DIR:../db.properties}", "../db.properties is not the name of a file in DIR"),
        ("${env:MOLDAU_TEST_MISSING}", "the environment has no variable MOLDAU_TEST_MISSING"),
        ("${env:a:b}", "variables of the environment have no path; write ${env:NAME}"),
        ("${vault:secret:key}", "config.providers has no vault"),
    ],
)
def test_a_placeholder_without_a_value_is_refused(secrets: Path, placeholder: str, reason: str) -> None:
    own = {"config.providers": "file,env,directory", "ssl.key.password": placeholder.replace("DIR", str(secrets))}
    with pytest.raises(SettingsRefused) as refused:
        resolve(own)
    expected = f"ssl.key.password has a placeholder without a value: {reason.replace('DIR', str(secrets))}"
    assert [problem.message for problem in refused.value.problems] == [expected]


@pytest.mark.parametrize(
    ("parameter", "value", "placeholder", "reason"),
    [
        ("file.param.allowed.paths", "/nowhere", "${file:DIR/db.properties:password}", "is not in allowed.paths"),
        ("env.param.allowlist.pattern", "SAFE_.*", "${env:HOME}", "HOME does not match allowlist.pattern"),
        ("env.param.allowlist.pattern", "(", "${env:HOME}", "missing )"),
    ],
)
def test_parameters_restrict_a_provider(
    secrets: Path, parameter: str, value: str, placeholder: str, reason: str
) -> None:
    own = {
        "config.providers": "file,env",
        f"config.providers.{parameter}": value,
        "broker.rack": placeholder.replace("DIR", str(secrets)),
    }
    with pytest.raises(SettingsRefused, match=reason.replace("(", r"\(").replace(")", r"\)")):
        resolve(own)


@pytest.mark.parametrize(
    ("own", "wrong"),
    [
        ({"config.providers": "vault"}, "config.providers.vault.class must be one of"),
        ({"config.providers": "env", "config.providers.env.class": "com.acme.Vault"}, "got 'com.acme.Vault'"),
        ({"config.providers.env.class": "x"}, "config.providers.env.class belongs to no provider"),
    ],
)
def test_an_unknown_provider_is_refused(own: dict[str, str], wrong: str) -> None:
    with pytest.raises(SettingsRefused, match=wrong):
        resolve(own)
