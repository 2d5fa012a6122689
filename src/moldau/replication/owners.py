"""Reports of partitions to their owners: one protocol for the owner of a partition, one for that of all replicas."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from moldau.base.ids import Offset

if TYPE_CHECKING:
    from moldau.replication.partition import Partition


class PartitionOwner(Protocol):
    """Hears of trouble with one partition. `Replicas` is one."""

    def disk_failed(self, partition: "Partition", problem: OSError) -> None:
        """The disk is broken: every partition in the same log directory is affected."""

    def disk_full(self, partition: "Partition", problem: OSError) -> None:
        """A write was refused for want of space or open files; it may succeed later."""

    def log_corrupt(self, partition: "Partition") -> None:
        """The log cannot be read."""

    def records_suspect(self, partition: "Partition", offset: Offset) -> None:
        """No follower can use the records at this offset."""


class ReplicasOwner(Protocol):
    """Hears of changes in a broker's replicas."""

    def role_changed(self, partition: "Partition") -> None:
        """The partition has another role, leader or epoch, or its disk failed."""

    def log_corrupt(self, partition: "Partition") -> None: ...

    def records_suspect(self, partition: "Partition", offset: Offset) -> None: ...

    def removed(self, partition: "Partition") -> None:
        """The partition was taken from this broker."""

    def went_offline(self) -> None:
        """More partitions are offline than before."""

    def all_directories_failed(self, reason: str) -> None: ...


class NoOwner:
    """Ignores every report."""

    def disk_failed(self, partition: "Partition", problem: OSError) -> None: ...

    def disk_full(self, partition: "Partition", problem: OSError) -> None: ...

    def role_changed(self, partition: "Partition") -> None: ...

    def log_corrupt(self, partition: "Partition") -> None: ...

    def records_suspect(self, partition: "Partition", offset: Offset) -> None: ...

    def removed(self, partition: "Partition") -> None: ...

    def went_offline(self) -> None: ...

    def all_directories_failed(self, reason: str) -> None: ...


NO_OWNER = NoOwner()


class StandaloneOwner(NoOwner):
    """Of the replicas of a broker without a cluster: only the loss of the last log directory concerns it."""

    def __init__(self, give_up: Callable[[str], None]) -> None:
        self._give_up = give_up

    def all_directories_failed(self, reason: str) -> None:
        self._give_up(reason)
