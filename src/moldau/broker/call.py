"""Call: one request's session, API version and correlation id, handed to every handler beside the request itself."""

from moldau.base.coordination import Caller
from moldau.base.session import Session
from moldau.broker.organisations.member import Member
from moldau.broker.quotas import Meter
from moldau.broker.security.authorizer import Authorizer, Rights


class Call:
    """Made for each request, so a plain class: compiled code makes one in the time of an attribute look-up."""

    __slots__ = ("correlation_id", "member", "meter", "session", "version")

    def __init__(self, session: Session, version: int, correlation_id: int, member: Member | None = None) -> None:
        self.session = session
        self.member = member  # None: a user of the cluster, of no organisation
        self.version = version
        self.correlation_id = correlation_id
        self.meter: Meter | None = None  # None: the client has no quota

    def rights(self, authorizer: Authorizer | None) -> Rights | None:
        """What the caller may do. None: everything."""
        if self.member is not None:
            return self.member.rights
        return None if authorizer is None else authorizer.rights(self.session)

    def throttle_ms(self) -> int:
        """How long the client has to wait after this response."""
        return 0 if self.meter is None else self.meter.throttle_ms()

    def caller(self) -> Caller:
        """The caller as a coordinator's state machine sees it; the host is written as in Kafka's group metadata."""
        session = self.session
        host = session.peer.rpartition(":")[0].strip("[]")
        return Caller(None, self.version, session.client_id or "", f"/{host}")
