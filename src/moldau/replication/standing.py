"""The standing of a partition on this broker: its role, whether it leads, and the obstacle if it does not.

1. The controller's image says which role a replica has: SOLE (the only replica), LEADER, FOLLOWER, or NONE once the
   partition was taken from this broker.
2. A replica that the image names leader leads, unless there is an obstacle. The first that applies counts:
     FENCED           it may have lost records that it wrote in this leader epoch; it may lead a later one.
     LOG_REPLACED     its log could not be used and was replaced by an empty one.
     CORRUPT          its log cannot be read, and another in-sync replica has the records.
     LACKS_COMMITTED  it lacks records that were committed, and another replica may have them.
   Obstacles are judged when the image changes: a leader whose log turns out corrupt resigns, and serves readable
   records until another is elected.
3. A leader with an obstacle, or with a failed disk, must resign: it asks for an ISR without itself.
4. A replica that is let into the ISR has all records: LOG_REPLACED ends, and of a follower no records are required.
5. A failed disk (offline) stops reads and writes in every role, until the broker restarts.
6. A sole replica that leads and is online takes the fast path: appended records are committed at once.

Only `assigned`, `removed` and `dataclasses.replace` make a new standing. Nothing here does I/O.
"""

from dataclasses import dataclass, field, replace
from enum import Enum

from moldau.base.ids import Epoch, Offset
from moldau.metadata.image import PartitionState


class Role(Enum):
    SOLE = "sole replica"
    LEADER = "leader"
    FOLLOWER = "follower"
    NONE = "no replica"


class Obstacle(Enum):
    """Why a replica that the image names leader does not lead."""

    FENCED = "it may have lost records of this leader epoch"
    LOG_REPLACED = "its log was replaced by an empty one"
    CORRUPT = "its log is corrupt"
    LACKS_COMMITTED = "it lacks committed records"


@dataclass(frozen=True, slots=True)
class Standing:
    role: Role = Role.SOLE
    obstacle: Obstacle | None = None
    offline: bool = False  # the disk failed
    corrupt: bool = False  # the log cannot be read, to be repaired from the leader
    moving: bool = False  # about to continue in another log directory: requests that cannot queue have to be retried
    log_replaced: bool = False
    fenced_epoch: Epoch = -1  # records up to this leader epoch may be lost
    required_offset: Offset = 0  # records before it were committed, and must be here again before this replica leads
    leads: bool = field(init=False, default=False)
    sole_online_replica: bool = field(init=False, default=False)  # the fast path

    def __post_init__(self) -> None:
        leads = self.role in (Role.SOLE, Role.LEADER) and self.obstacle is None
        object.__setattr__(self, "leads", leads)
        object.__setattr__(self, "sole_online_replica", leads and self.role is Role.SOLE and not self.offline)

    @property
    def must_resign(self) -> bool:
        return self.role is Role.LEADER and (self.offline or not self.leads)


def assigned(
    standing: Standing,
    broker: int,
    old: PartitionState | None,
    new: PartitionState,
    end_offset: Offset,
    checkpointed: Offset | None = None,
) -> Standing:
    """The standing after the image changed from `old` to `new`.

    `checkpointed`: the high watermark on disk, when the log was just opened.
    """
    required = standing.required_offset if checkpointed is None else checkpointed
    joined = old is not None and broker in new.isr and broker not in old.isr
    if joined and new.leader != broker:
        required = 0
    standing = replace(
        standing,
        role=_role(new, broker),
        obstacle=None,
        required_offset=required,
        log_replaced=standing.log_replaced and not joined,
    )
    if standing.role is Role.FOLLOWER:
        return standing
    obstacle = _obstacle(standing, new, end_offset)
    return replace(standing, obstacle=obstacle, required_offset=0 if obstacle is None else required)


def removed(standing: Standing) -> Standing:
    """The standing after the partition was taken from this broker."""
    return replace(standing, role=Role.NONE, obstacle=None)


def _role(state: PartitionState, broker: int) -> Role:
    if state.leader != broker:
        return Role.FOLLOWER
    return Role.SOLE if state.replicas == (broker,) else Role.LEADER


def _obstacle(standing: Standing, state: PartitionState, end_offset: Offset) -> Obstacle | None:
    others_in_sync = len(state.isr) > 1
    if len(state.replicas) > 1 and state.leader_epoch <= standing.fenced_epoch:
        return Obstacle.FENCED
    if standing.log_replaced:
        return Obstacle.LOG_REPLACED
    if standing.corrupt and others_in_sync:
        return Obstacle.CORRUPT
    if end_offset < standing.required_offset and (others_in_sync or state.elr):
        return Obstacle.LACKS_COMMITTED
    return None
