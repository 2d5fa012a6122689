"""What a handler may want to know of a request beside its message."""

from typing import NamedTuple

from moldau.base.coordination import Caller


class Call(NamedTuple):
    version: int
    client_id: str | None
    listener: str
    peer: str  # address and port

    def caller(self) -> Caller:
        """As a coordinator's machine knows who asks; hosts are written as Kafka writes them in its records."""
        host = self.peer.rpartition(":")[0].strip("[]")
        return Caller(None, self.version, self.client_id or "", f"/{host}")
