"""SASL exchanges on the server's side as value machines: bytes of the client in, an outcome out. No mechanism is here.

A step that takes milliseconds of hashing is an outcome too, `NeedsWork`: a thread runs it, and the event loop goes on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class Challenge:
    """Bytes for the client, which responds to them."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The end of an exchange: who the client is, and the last bytes for it."""

    user: str
    data: bytes = field(default=b"", repr=False)
    expires_ms: int | None = None  # when the credential expires, in milliseconds since the Unix epoch
    by_token: bool = False  # by a delegation token


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of an exchange. `reason` is for the log; `told` for the client, where it may know more than "failed".

    `user` is for the audit, and empty unless there is such a user: a password may be typed where a name belongs.
    """

    reason: str
    told: str = ""
    user: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class NeedsWork:
    """A step that hashes or verifies for long. Nothing else may use the exchange until `run` has returned."""

    run: "Callable[[], Challenge | Authenticated | Failed]"


Outcome: TypeAlias = Challenge | Authenticated | Failed | NeedsWork


class Exchange(Protocol):
    """One login with one mechanism. After Authenticated or Failed it takes no more steps."""

    def step(self, data: bytes) -> Outcome: ...
