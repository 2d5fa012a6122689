"""Config providers (KIP-297): values for `${provider:path:key}` in settings, out of files and the environment.

They keep secrets out of the properties file. A placeholder without a value is refused, where Kafka would take it
literally.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from moldau.base.properties import MalformedProperties, Properties, read_properties
from moldau.base.settings import SettingError, SettingsRefused, shortened

PROVIDERS: Final = "config.providers"
PLACEHOLDER: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")
PACKAGE: Final = "org.apache.kafka.common.config.provider."


class Placeholder(NamedTuple):
    """`${provider:path:key}`; the environment has no paths."""

    provider: str
    path: str
    key: str


class NoValue(Exception):
    """Why a placeholder has no value. The text names files and keys, never values."""


Parameters = Mapping[str, str]
Provider = Callable[[Placeholder, Parameters], str]


def _from_file(asked: Placeholder, parameters: Parameters) -> str:
    text = _read(_allowed(asked.path, parameters))
    try:
        values = read_properties(text, asked.path)
    except MalformedProperties as problem:
        raise NoValue(f"{asked.path} is not a properties file: {problem}") from None
    if asked.key not in values:
        raise NoValue(f"{asked.path} has no key {asked.key}")
    return values[asked.key]


def _from_directory(asked: Placeholder, parameters: Parameters) -> str:
    if not asked.key or asked.key in (".", "..") or "/" in asked.key:
        raise NoValue(f"{asked.key or 'an empty name'} is not the name of a file in {asked.path}")
    return _read(_allowed(asked.path, parameters) / asked.key)


def _from_environment(asked: Placeholder, parameters: Parameters) -> str:
    if asked.path:
        raise NoValue("variables of the environment have no path; write ${env:NAME}")
    pattern = parameters.get("allowlist.pattern", "")
    if pattern and not re.fullmatch(pattern, asked.key):
        raise NoValue(f"{asked.key} does not match allowlist.pattern")
    if asked.key not in os.environ:
        raise NoValue(f"the environment has no variable {asked.key}")
    return os.environ[asked.key]


def _allowed(path: str, parameters: Parameters) -> Path:
    wanted = Path(os.path.realpath(path))
    allowed = [Path(os.path.realpath(each.strip())) for each in parameters.get("allowed.paths", "").split(",") if each]
    if allowed and not any(wanted == each or each in wanted.parents for each in allowed):
        raise NoValue(f"{path} is not in allowed.paths")
    return wanted


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise NoValue(f"{path} is not text in UTF-8") from None
    except OSError as problem:
        raise NoValue(f"cannot read {path}: {problem.strerror}") from None


BY_CLASS: Final[Mapping[str, Provider]] = {
    f"{PACKAGE}FileConfigProvider": _from_file,
    f"{PACKAGE}DirectoryConfigProvider": _from_directory,
    f"{PACKAGE}EnvVarConfigProvider": _from_environment,
}
CLASS_BY_NAME: Final = {  # where `config.providers.<name>.class` is left out
    "file": f"{PACKAGE}FileConfigProvider",
    "directory": f"{PACKAGE}DirectoryConfigProvider",
    "env": f"{PACKAGE}EnvVarConfigProvider",
}


def resolve(properties: Mapping[str, str]) -> Mapping[str, str]:
    """The settings with values in place of placeholders. Raises SettingsRefused with all problems."""
    names = [name.strip() for name in properties.get(PROVIDERS, "").split(",") if name.strip()]
    problems: list[SettingError] = []
    providers = {name: each for name in names if (each := _provider(name, properties, problems))}
    resolved = Properties()
    if isinstance(properties, Properties):
        resolved = properties.copy()
    else:
        resolved.update(properties)
    for name, text in properties.items():
        if name.startswith(f"{PROVIDERS}."):
            if name.split(".")[2] not in names:
                problems.append(SettingError(name, f"{name} belongs to no provider of {PROVIDERS}"))
            del resolved[name]
        elif providers and name != PROVIDERS:
            value = _filled(name, text, providers, properties)
            if isinstance(value, SettingError):
                problems.append(value)
            elif value != text:
                resolved.replace(name, value)
    if problems:
        raise SettingsRefused(problems)
    return resolved


def _provider(name: str, properties: Mapping[str, str], problems: list[SettingError]) -> Provider | None:
    setting = f"{PROVIDERS}.{name}.class"
    class_name = properties.get(setting, CLASS_BY_NAME.get(name, ""))
    if class_name in BY_CLASS:
        return BY_CLASS[class_name]
    known = ", ".join(sorted(BY_CLASS))
    problems.append(SettingError(setting, f"{setting} must be one of {known}; got {shortened(class_name)!r}"))
    return None


def _filled(
    setting: str, text: str, providers: Mapping[str, Provider], properties: Mapping[str, str]
) -> str | SettingError:
    def value(match: re.Match[str]) -> str:
        asked = Placeholder(match[1], match[2] or "", match[3])
        if asked.provider not in providers:
            raise NoValue(f"{PROVIDERS} has no {asked.provider}")
        prefix = f"{PROVIDERS}.{asked.provider}.param."
        parameters = {each.removeprefix(prefix): properties[each] for each in properties if each.startswith(prefix)}
        return providers[asked.provider](asked, parameters)

    try:
        return PLACEHOLDER.sub(value, text)
    except (NoValue, re.error) as problem:
        return SettingError(setting, f"{setting} has a placeholder without a value: {problem}")
