"""Directory of organisations: those of the image, the members behind sessions, and what counts their traffic."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import unquote
from uuid import UUID

from moldau.base.session import Principal, SecurityProtocol, Session
from moldau.broker.organisations.member import Member
from moldau.broker.organisations.storage import Storage
from moldau.broker.organisations.traffic import TrafficTable
from moldau.broker.security.denials import Denials
from moldau.broker.settings import BrokerConfig
from moldau.groups.consumer.regex import check as problem_of_pattern
from moldau.metadata.documents import Documents
from moldau.metadata.image import ClusterImage
from moldau.net.reply import BadRequest
from moldau.security.organisation_names import OrganisationNames
from moldau.security.organisation_roles import RoleIndex
from moldau.security.organisations import (
    ROOT,
    MalformedOrganisation,
    Organisation,
    from_json,
    member_of,
)

logger: Final = logging.getLogger("moldau.broker")

_PREFIX: Final = f"{ROOT}/"


def read_organisations(documents: Documents) -> dict[str, Organisation]:
    """The organisations in the documents. One that cannot be read has no members, and so no rights for any."""
    found: dict[str, Organisation] = {}
    for path, text in documents.items():
        if path.startswith(_PREFIX):
            name = unquote(path.removeprefix(_PREFIX))
            try:
                found[name] = from_json(name, text)
            except MalformedOrganisation as problem:
                logger.error("%s cannot be read: its members have no rights. Write it again", problem)
                found[name] = Organisation(name)
    return found


class OrganisationReader:
    """The organisations in documents, read again only if these are other ones than the last time."""

    def __init__(self) -> None:
        self._documents: Documents = {}
        self._found: Mapping[str, Organisation] = {}

    def __call__(self, documents: Documents) -> Mapping[str, Organisation]:
        if documents is not self._documents:
            self._documents, self._found = documents, read_organisations(documents)
        return self._found


@dataclass(frozen=True, slots=True)
class Membership:
    """What is known of a session: its member, or that it has none."""

    version: int
    principal: Principal
    member: Member | None


class Roles:
    """The source of one member's rights: always its newest roles, and none if its organisation is gone."""

    def __init__(self, directory: "Directory", organisation: Organisation, user: str) -> None:
        self.image = directory.image
        self.denials = directory.denials
        self._directory = directory
        self._name = organisation.name
        self._user = user
        self._read = directory.version
        self._index = RoleIndex(organisation, user)

    @property
    def version(self) -> int:
        return self._directory.version

    @property
    def index(self) -> RoleIndex:
        if self._read != self._directory.version:
            self._read = self._directory.version
            organisation = self._directory.organisations.get(self._name) or Organisation(self._name)
            self._index = RoleIndex(organisation, self._user)
        return self._index


class Directory:
    """`sessions`: of all open connections. `sizes`: topic and size of each partition that this broker leads."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        config: Callable[[], BrokerConfig],
        read: OrganisationReader,
        denials: Denials,
        sessions: Callable[[], Iterable[Session]],
        sizes: Callable[[], Iterable[tuple[str, int]]],
    ) -> None:
        self.image = image
        self._read = read
        self._sessions = sessions
        self.organisations: Mapping[str, Organisation] = {}
        self.traffic = TrafficTable(config)
        self.storage = Storage(sizes, lambda: self.organisations)
        self.denials = denials
        self.version = 0  # grows when organisations change

    def follow(self, old: ClusterImage | None, new: ClusterImage) -> None:
        if old is not None and old.documents is new.documents:
            return
        found = self._read(new.documents)
        if found != self.organisations:
            self.organisations = found
            self.version += 1
            self.traffic.follow(found)

    def member(self, session: Session) -> Member | None:
        """The member behind a session; None for a user of the cluster."""
        known = session.membership
        if isinstance(known, Membership) and known.version == self.version and known.principal is session.principal:
            return known.member
        member = self._find(session)
        session.membership = Membership(self.version, session.principal, member)
        return member

    def refusal(self, principal: Principal) -> str | None:
        """Why a principal cannot have another connection to this broker; None: it can."""
        of = member_of(principal)
        organisation = None if of is None else self.organisations.get(of[0])
        most = None if organisation is None else organisation.limits.connections
        if organisation is None or most is None or self.connections(organisation.name) < most:
            return None
        return _too_many(organisation.name, most)

    def connections(self, organisation: str) -> int:
        """The open connections of an organisation's members to this broker."""
        found = (member_of(session.principal) for session in self._sessions())
        return sum(1 for of in found if of is not None and of[0] == organisation)

    def _find(self, session: Session) -> Member | None:
        of = member_of(session.principal)
        organisation = None if of is None else self.organisations.get(of[0])
        if of is None or organisation is None:
            return None
        most = organisation.limits.connections
        by_certificate = session.security_protocol is SecurityProtocol.SSL  # logins are refused before they end
        if most is not None and by_certificate and session.membership is None and self.connections(of[0]) > most:
            raise BadRequest(_too_many(organisation.name, most))
        user = of[1]
        roles = Roles(self, organisation, user)
        owns = partial(self._owns, organisation.prefix)
        names = OrganisationNames(organisation.name, owns, lambda pattern: problem_of_pattern(pattern) is None)
        return Member(organisation, user, names, roles, session, self.traffic, self.storage)

    def _owns(self, prefix: str, topic_id: UUID) -> bool:
        topic = self.image().topics_by_id.get(topic_id)
        return topic is not None and topic.name.startswith(prefix)


def _too_many(organisation: str, most: int) -> str:
    return f"organisation {organisation} has {most} connections to this broker, which is its limit"
