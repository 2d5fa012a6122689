"""Call: one request's session, API version and correlation id, handed to every handler beside the request itself."""

from dataclasses import dataclass

from moldau.base.coordination import Caller
from moldau.base.session import Session


@dataclass(slots=True)
class Call:
    """Made for each request. Not a tuple: this is the hot path, and a slotted object is made in half the time."""

    session: Session
    version: int
    correlation_id: int

    def caller(self) -> Caller:
        """The caller as a coordinator's state machine sees it; the host is written as in Kafka's group metadata."""
        session = self.session
        host = session.peer.rpartition(":")[0].strip("[]")
        return Caller(None, self.version, session.client_id or "", f"/{host}")
