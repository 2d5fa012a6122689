"""Where encryption keys come from: the port, a table in memory, a directory of key files. Encrypts nothing itself."""

import base64
import binascii
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from moldau.client.errors import InvalidUse

KEY_BYTES = 32  # of AES-256
KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
CURRENT = "current"


class KeyUnknown(LookupError):
    """A key id for which the provider has no key."""


class KeyProvider(Protocol):
    """The port: a table, files, a vault. `current` is asked for every record, `get` once for every key."""

    def current(self) -> str:
        """The id of the key that new records are encrypted with."""
        ...

    def get(self, key_id: str) -> bytes:
        """The 32 bytes of a key; raises `KeyUnknown`. An id means the same key for ever."""
        ...


class Keys:
    """Keys in memory, by id. To rotate, add a key and make it the current one; keep the old ones for old records."""

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        for key_id, key in keys.items():
            if not KEY_ID.fullmatch(key_id):
                raise InvalidUse(f"{key_id!r} is no key id: letters, digits, '.', '_' and '-', at most 128")
            checked(key_id, key)
        if current not in keys:
            raise InvalidUse(f"the current key {current!r} is not among the keys")
        self._keys = dict(keys)
        self._current = current

    def current(self) -> str:
        return self._current

    def get(self, key_id: str) -> bytes:
        try:
            return self._keys[key_id]
        except KeyError:
            raise KeyUnknown(f"no key {key_id!r}; there are: {', '.join(sorted(self._keys))}") from None

    def __repr__(self) -> str:
        return f"Keys({', '.join(sorted(self._keys))}; current {self._current})"


class KeyDirectory:
    """Keys in the files of a directory, such as a mounted secret: a file's name is the id of its key.

    A file holds 32 bytes, or their base64 text. The file `current` names the current key. It is read again when it was
    changed, so that a rotation needs no restart: add the key's file everywhere first, then replace `current`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._current = ""
        try:
            self.get(self.current())
        except KeyUnknown as error:
            raise InvalidUse(str(error)) from error

    def current(self) -> str:
        file = self._path / CURRENT
        try:
            status = file.stat()
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
            if seen != self._seen:
                self._current = file.read_text().strip()
                self._seen = seen
        except OSError as error:
            raise KeyUnknown(f"{file} should name the current key: {error.strerror}") from error
        return self._current

    def get(self, key_id: str) -> bytes:
        if not KEY_ID.fullmatch(key_id) or key_id == CURRENT:  # ids of records may come from strangers
            raise KeyUnknown(f"{key_id!r} is not the name of a key file")
        file = self._path / key_id
        try:
            content = file.read_bytes()
        except OSError as error:
            raise KeyUnknown(f"no key {key_id!r}: {file}: {error.strerror}") from error
        key = content if len(content) == KEY_BYTES else _decoded(content)
        if key is None or len(key) != KEY_BYTES:
            raise KeyUnknown(f"{file} is no key: it should hold {KEY_BYTES} bytes, or their base64 text")
        return key

    def __repr__(self) -> str:
        return f"KeyDirectory({str(self._path)!r})"


def checked(key_id: str, key: bytes) -> bytes:
    if not isinstance(key, bytes):
        raise InvalidUse(f"key {key_id!r} is {type(key).__name__}; give bytes")
    if len(key) != KEY_BYTES:
        raise InvalidUse(f"key {key_id!r} has {len(key)} bytes; AES-256 needs {KEY_BYTES}")
    return key


def _decoded(content: bytes) -> bytes | None:
    try:
        return base64.b64decode(content.strip(), validate=True)
    except binascii.Error:
        return None
