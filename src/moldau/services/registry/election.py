"""Election: one of the registries of a cluster writes, chosen through a consumer group as Confluent's registries do it.

Each is a member of a classic group of protocol type `sr`, with its address as metadata. The group's leader picks the
writer and tells all in their assignments. Membership alone fences nobody: `topic.TopicWriter` does.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from moldau.base.errors import WireError
from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import GROUP, Cluster
from moldau.client.direct.security import Security
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import JoinGroupProtocol, JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupMember, LeaveGroupRequest, LeaveGroupResponse
from moldau.wire.messages.sync_group import SyncGroupAssignment, SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger("moldau.services.registry")

Response = TypeVar("Response")

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"
VERSION: Final = 1
NO_ERROR: Final = 0
DUPLICATE_URLS: Final = 1
CLIENT_ID: Final = "moldau-registry"
PAUSE_S: Final = 1.0  # after a failure


@dataclass(frozen=True, slots=True)
class Timing:
    session_ms: int = 10_000
    rebalance_ms: int = 15_000
    heartbeat_s: float = 2.0
    request_s: float = 20.0  # a join waits for the other members up to the rebalance timeout


def timing_of(session_s: float) -> Timing:
    """Heartbeats are as often as five in a session, and the others have as long to join."""
    session_ms = int(session_s * 1000)
    return Timing(session_ms, rebalance_ms=session_ms * 3 // 2, heartbeat_s=session_s / 5, request_s=session_s * 2)


@dataclass(frozen=True, slots=True)
class Identity:
    """How the other registries reach this one."""

    scheme: str
    host: str
    port: int
    eligible: bool = True
    writes: bool = False  # it was elected before

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def to_json(self) -> dict[str, object]:
        return {
            "version": VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
            "leader": self.writes,
        }


def read_identity(value: object) -> Identity | None:
    """The identity in a member's metadata or in an assignment; None if it cannot be read."""
    if not isinstance(value, dict):
        return None
    host, port, scheme = value.get("host"), value.get("port"), value.get("scheme", "http")
    if not isinstance(host, str) or not isinstance(port, int) or not isinstance(scheme, str):
        return None
    return Identity(scheme, host, port, value.get("master_eligibility") is not False, value.get("leader") is True)


def elect(members: dict[str, Identity]) -> dict[str, object]:
    """The assignment for all members: the one that writes goes on, else the eligible one with the first id begins."""
    urls = [each.url for each in members.values()]
    error = DUPLICATE_URLS if len(set(urls)) < len(urls) else NO_ERROR
    eligible = sorted(
        (member for member, identity in members.items() if identity.eligible),
        key=lambda member: (not members[member].writes, member),
    )
    chosen = eligible[0] if eligible and error == NO_ERROR else None
    identity = None if chosen is None else members[chosen].to_json()
    return {"version": VERSION, "error": error, "master": chosen, "master_identity": identity}


def read_object(data: bytes) -> dict[str, object]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


Elected = Callable[[Identity | None, bool], None]  # who writes, and whether that is this member


class Member:
    """A thread that joins the group and stays in it. `elected` is called from it after each rebalance."""

    def __init__(
        self,
        bootstrap: str,
        security: Security,
        group: str,
        identity: Identity,
        elected: Elected,
        *,
        timing: Timing = Timing(),  # noqa: B008  # an immutable value
    ) -> None:
        self._group = group
        self._identity = identity
        self._elected = elected
        self._timing = timing
        self._cluster = Cluster(bootstrap, security, client_id=CLIENT_ID, timeout_s=timing.request_s)
        self._member_id = ""
        self._generation = -1
        self._writes = False
        self._stopping = threading.Event()
        self._again = threading.Event()
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="moldau-registry-group", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def problem(self) -> str:
        """Why this member is not in the group; empty if it is."""
        return self._told

    def rejoin(self) -> None:
        """Leave and join again: this member could not write although it was elected."""
        self._again.set()

    def stop(self, seconds: float) -> None:
        """Leave the group, so that another one takes over at once."""
        self._stopping.set()
        self._again.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    # ── the thread ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._stopping.is_set():
            problem = self._live()
            if problem is not None:
                self._writes = False
                self._elected(None, False)
                self._tell(str(problem))
                self._stopping.wait(PAUSE_S)
        self._leave()
        self._cluster.close()

    def _live(self) -> Failure | None:
        """One generation: join, learn who writes, stay until the group changes."""
        joined = self._join()
        if isinstance(joined, Failure):
            return joined
        synced = self._sync(joined)
        if isinstance(synced, Failure):
            return synced if synced.code != WireError.REBALANCE_IN_PROGRESS else None
        assignment = read_object(synced.assignment)
        if assignment.get("error") == DUPLICATE_URLS:
            logger.error(
                "Two registries of group %s have the address %s; give each its own with --advertised",
                self._group,
                self._identity.url,
            )
        self._told = ""
        self._writes = assignment.get("master") == self._member_id
        self._elected(read_identity(assignment.get("master_identity")), self._writes)
        return self._stay()

    def _join(self) -> JoinGroupResponse | Failure:
        metadata = json.dumps(replace(self._identity, writes=self._writes).to_json()).encode()
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=self._timing.session_ms,
                rebalance_timeout_ms=self._timing.rebalance_ms,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=(JoinGroupProtocol(name=PROTOCOL, metadata=metadata),),
            )
            response = self._ask(request, JoinGroupResponse, _join_error)
            if isinstance(response, Failure):
                if response.code == WireError.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                return response
            self._member_id = response.member_id
            if response.error_code != WireError.MEMBER_ID_REQUIRED:
                self._generation = response.generation_id
                return response

    def _sync(self, joined: JoinGroupResponse) -> SyncGroupResponse | Failure:
        assignments: tuple[SyncGroupAssignment, ...] = ()
        if joined.leader == joined.member_id:
            found = {each.member_id: read_identity(read_object(each.metadata)) for each in joined.members}
            chosen = elect({member: identity for member, identity in found.items() if identity is not None})
            data = json.dumps(chosen).encode()
            assignments = tuple(SyncGroupAssignment(member_id=each, assignment=data) for each in found)
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        return self._ask(request, SyncGroupResponse, lambda reply: reply.error_code)

    def _stay(self) -> Failure | None:
        """Heartbeat until the group changes; a member that cannot for a session's length is out."""
        last = time.monotonic()
        while not self._again.wait(self._timing.heartbeat_s):
            request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
            response = self._ask(request, HeartbeatResponse, lambda reply: reply.error_code, once=True)
            if not isinstance(response, Failure):
                last = time.monotonic()
            elif response.code == WireError.REBALANCE_IN_PROGRESS:
                return None
            elif not response.retriable or time.monotonic() - last > self._timing.session_ms / 1000:
                if response.code in (WireError.UNKNOWN_MEMBER_ID, WireError.ILLEGAL_GENERATION):
                    self._member_id = ""
                return response
        self._again.clear()
        if not self._stopping.is_set():
            self._leave()
        return None

    def _leave(self) -> None:
        self._writes = False
        if self._member_id:
            request = LeaveGroupRequest(group_id=self._group, members=(LeaveGroupMember(member_id=self._member_id),))
            self._ask(request, LeaveGroupResponse, lambda reply: reply.error_code, once=True)
            self._member_id = ""

    def _ask(
        self,
        request: object,
        response: type[Response],
        error_of: Callable[[Response], int],
        *,
        once: bool = False,
    ) -> Response | Failure:
        retries = self._cluster.retries(0 if once else None)
        return self._cluster.ask_coordinator(GROUP, self._group, request, response, error_of, retries)

    def _tell(self, text: str) -> None:
        """Log a problem once while it lasts."""
        if text != self._told:
            logger.warning("The schema registry cannot take part in the election of a writer: %s; trying again", text)
            self._told = text


def _join_error(response: JoinGroupResponse) -> int:
    return 0 if response.error_code == WireError.MEMBER_ID_REQUIRED else response.error_code
