"""Errors of the admin library. The text is one clause without advice: callers know how their users can react."""

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition


class AdminError(Exception):
    """A request about a cluster failed."""


class InvalidArgument(AdminError):
    """The request makes no sense, whatever the state of the cluster."""


class InvalidAddress(InvalidArgument):
    """A bootstrap address that is not HOST:PORT, or none at all."""


class InvalidProperty(InvalidArgument):
    """A property that librdkafka does not know, or a value that it refuses."""


class Unreachable(AdminError):
    """No connection to a broker, or no response in time."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot reach a broker at {address} ({reason})")
        self.address = address
        self.reason = reason


class AdvertisedUnreachable(Unreachable):
    """The bootstrap address works, and the address that a broker advertises does not."""

    def __init__(self, address: str, reason: str, bootstrap: str, broker: int) -> None:
        super().__init__(address, reason)
        self.args = (f"broker {broker} advertises {address}, which cannot be reached ({reason}); {bootstrap} can",)
        self.broker = broker


class ProtocolMismatch(Unreachable):
    """The broker listens, and does not speak the security protocol that the client is set to, but perhaps `wanted`."""

    def __init__(self, address: str, reason: str, protocol: str, wanted: str = "") -> None:
        super().__init__(address, reason)
        self.args = (f"{address} accepts connections, but {reason}",)
        self.protocol = protocol
        self.wanted = wanted


class NotTls(ProtocolMismatch):
    """The client is set to TLS, and the listener has none."""


class TlsFailed(Unreachable):
    """Client and broker do not agree on TLS. `problem` is the end of "host:port …" and says what helps."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(address, problem)
        self.args = (f"{address} {problem}",)


class LoginFailed(AdminError):
    """The broker does not let the user in."""


class Refused(AdminError):
    """A broker, or librdkafka, answered with an error. `name` is Kafka's name of the error."""

    def __init__(self, name: str, problem: str, *, topic: str = "") -> None:
        super().__init__(f"{problem} ({name})")
        self.name = name
        self.problem = problem
        self.topic = topic


class NoSuchTopic(AdminError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"there is no topic {topic!r}")
        self.topic = topic


class NoSuchPartition(AdminError):
    """`count` is the number of partitions that the topic has, where it is known."""

    def __init__(self, topic: str, partition: int | None = None, count: int | None = None) -> None:
        number = "such partition" if partition is None else f"partition {partition}"
        super().__init__(f"topic {topic!r} has no {number}" + ("" if count is None else f": it has {count}"))
        self.topic = topic
        self.partition = partition


class NoLeader(AdminError):
    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition} has no leader")
        self.topic = partition.topic


class NoSuchGroup(AdminError):
    def __init__(self, group: str) -> None:
        super().__init__(f"there is no group {group!r}")
        self.group = group


class GroupNotEmpty(AdminError):
    """The group has live members, and the request needs a group without."""

    def __init__(self, group: str, members: int | None = None, state: str = "") -> None:
        count = "live members" if members is None else f"{members} live member{'' if members == 1 else 's'}"
        super().__init__(f"group {group!r} has {count}" + (f" (state {state})" if state else ""))
        self.group = group


class GroupSubscribed(AdminError):
    """Offsets of a topic to which live members of the group are subscribed."""

    def __init__(self, group: str, topic: str) -> None:
        super().__init__(f"live members of group {group!r} are subscribed to {topic!r}")
        self.group = group


class NothingCommitted(AdminError):
    """The group has no committed offset for this topic or partition; for none at all if `where` is empty."""

    def __init__(self, group: str, where: str = "") -> None:
        super().__init__(f"group {group!r} has no committed offset" + (f" for {where}" if where else ""))
        self.group = group


class NothingToShift(NothingCommitted):
    """A shift of a partition without a committed offset."""


class OffsetOutOfRange(AdminError):
    """The partition does not have this offset."""


class NoSuchBroker(AdminError):
    def __init__(self, broker: int, known: list[int]) -> None:
        super().__init__(f"there is no broker {broker}")
        self.known = known


class BrokerCordoned(AdminError):
    def __init__(self, broker: int) -> None:
        super().__init__(f"broker {broker} takes no new replicas: it is cordoned")
        self.broker = broker


class NoSuchTransactionalId(AdminError):
    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"there is no transactional id {transactional_id!r}")


class NoSuchTransaction(AdminError):
    """No transaction is open at this offset."""

    def __init__(self, partition: TopicPartition, start_offset: int) -> None:
        super().__init__(f"no open transaction begins at offset {start_offset} of {partition}")
        self.partition = partition


class ImpossibleAssignment(AdminError):
    """There are not enough brokers for the replicas."""


# ── users, tokens, organisations ──


class NoSuchUser(AdminError):
    def __init__(self, user: str) -> None:
        super().__init__(f"there is no user {user!r} with a SCRAM credential")


class NoPassword(InvalidArgument):
    def __init__(self) -> None:
        super().__init__("a user needs a password, and this one is empty")


class BrokerHasRun(InvalidArgument):
    """A user for the first start of a broker, which is over."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"{directory} belongs to a broker that has run: its users are in its metadata")


class NoSuchToken(AdminError):
    def __init__(self, token_id: str) -> None:
        super().__init__(f"there is no delegation token {token_id!r} that you own or may renew")


class NoSuchOrganisation(AdminError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no organisation {name!r}")


class NoSuchProduct(AdminError):
    def __init__(self, organisation: str, product: str) -> None:
        super().__init__(f"organisation {organisation!r} has no product {product!r}")
        self.organisation = organisation


class NoSuchRole(AdminError):
    """A role that cannot be taken from a user; `product` is None for any."""

    def __init__(self, organisation: str, user: str, product: str | None = None) -> None:
        super().__init__(f"{organisation}/{user} has no role" + ("" if product is None else f" in {product!r}"))
        self.organisation = organisation


def refused(code: int, problem: str) -> Refused:
    """The error that a response carries, after the problem that it means."""
    try:
        name = WireError(code).name
    except ValueError:  # one that only other brokers answer with
        name = f"error {code}"
    return Refused(name, problem)
