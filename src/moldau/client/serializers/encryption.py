"""End-to-end encryption of values: a Serde around another one, so that brokers store what only clients can read.

AES-256-GCM, with a random nonce of 96 bits per record. The id of the key is in a header; topic and record key are
authenticated with the value: a value that was moved to another topic or key is refused. Keys, headers, timestamps and
sizes of values stay readable. Null stays null: a tombstone must be one to the broker.

A key should encrypt at most 2³² records (random nonces, NIST SP 800-38D); rotate it before.
"""

import struct
from os import urandom
from typing import Generic

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from moldau.client.errors import InvalidUse
from moldau.client.serializers.choose import deserializer_for, serializer_for
from moldau.client.serializers.keys import KeyProvider, checked
from moldau.client.serializers.port import DeserializerKind, SerializerContext, SerializerKind, V

HEADER = "moldau.encryption.key"  # the id of the key, as text
VERSION = b"\1"  # the first byte of an encrypted value; nonce, ciphertext and tag follow
NONCE_BYTES = 12
TAG_BYTES = 16
MOST_CIPHERS = 64  # that an Encrypted keeps ready; a topic has few keys at a time


class DecryptionFailed(ValueError):
    """A value that was not encrypted with this key for this topic and record key, or that was changed since."""


class Encrypted(Generic[V]):
    """The Serde of `kind`, encrypted with `keys`.

    `topic`: values are bound to this name instead of the topic they are in, for copies in other topics: mirrors, dead
    letters. `accept_plaintext`: also read values that are not encrypted, while producers are switched over; as long as
    it is on, whoever can write to the topic can forge values.
    """

    def __init__(
        self,
        kind: SerializerKind[V] | DeserializerKind[V] | None = None,
        *,
        keys: KeyProvider,
        topic: str | None = None,
        accept_plaintext: bool = False,
    ) -> None:
        if not all(callable(getattr(keys, method, None)) for method in ("current", "get")):
            raise InvalidUse("keys: give Keys(…), a KeyDirectory, or an object with current() and get(key_id)")
        self._serialize = serializer_for(kind)  # type: ignore[arg-type]  # a function fits one direction only
        self._deserialize = deserializer_for(kind)  # type: ignore[arg-type]
        self._keys = keys
        self._topic = topic
        self._accept_plaintext = accept_plaintext
        self._ciphers: dict[str, AESGCM] = {}

    def serialize(self, obj: V, ctx: SerializerContext, /) -> bytes | None:
        _refuse_keys(ctx)
        plain = self._serialize(obj, ctx)
        if plain is None:
            return None
        key_id, nonce = self._keys.current(), urandom(NONCE_BYTES)
        sealed = self._cipher(key_id).encrypt(nonce, plain, self._bound_to(key_id, ctx))
        # Headers of a record that is passed on may name the key that its old value was encrypted with.
        ctx.headers[:] = [header for header in ctx.headers if header[0] != HEADER]
        ctx.headers.append((HEADER, key_id.encode()))
        return VERSION + nonce + sealed

    def deserialize(self, value: bytes | None, ctx: SerializerContext, /) -> V:
        _refuse_keys(ctx)
        return self._deserialize(None if value is None else self._decrypt(value, ctx), ctx)

    def _decrypt(self, value: bytes, ctx: SerializerContext) -> bytes:
        key_id = _key_id(ctx)
        if key_id is None:
            if self._accept_plaintext:
                return value
            raise DecryptionFailed(f"the value is not encrypted: the record has no header {HEADER}")
        if value[:1] != VERSION:
            raise DecryptionFailed("the value is not in a form that this version can decrypt, or was changed")
        if len(value) < len(VERSION) + NONCE_BYTES + TAG_BYTES:
            raise DecryptionFailed(
                f"the value was truncated: {len(value)} bytes are fewer than any encrypted value has"
            )
        start = len(VERSION) + NONCE_BYTES
        try:
            return self._cipher(key_id).decrypt(
                value[len(VERSION) : start], memoryview(value)[start:], self._bound_to(key_id, ctx)
            )
        except InvalidTag:
            raise DecryptionFailed(
                f"key {key_id!r} does not decrypt it: it is another key of that name, or the value was changed or "
                f"truncated, or encrypted for another topic than {self._topic or ctx.topic} or for another record key"
            ) from None

    def _cipher(self, key_id: str) -> AESGCM:
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            cipher = AESGCM(checked(key_id, self._keys.get(key_id)))
            if len(self._ciphers) < MOST_CIPHERS:
                self._ciphers[key_id] = cipher
        return cipher

    def _bound_to(self, key_id: str, ctx: SerializerContext) -> bytes:
        """The associated data: version, key id, topic, and the record's key; each can only be read in one way."""
        name, topic = key_id.encode(), (self._topic or ctx.topic).encode()
        key = b"\0" if ctx.key is None else b"\1" + ctx.key
        return b"".join((VERSION, _SIZE.pack(len(name)), name, _SIZE.pack(len(topic)), topic, key))

    def __repr__(self) -> str:
        return f"Encrypted(keys={self._keys!r})"


_SIZE = struct.Struct(">H")


def _refuse_keys(ctx: SerializerContext) -> None:
    if ctx.field == "key":
        raise InvalidUse("record keys are not encrypted: partitions and compaction need equal keys to have equal bytes")


def _key_id(ctx: SerializerContext) -> str | None:
    for name, value in reversed(ctx.headers):
        if name == HEADER:
            return (value or b"").decode("utf-8", "backslashreplace")
    return None
