"""Broker settings of the group and transaction coordinators that mean something here."""

from moldau.base.settings import Kind, Live, Setting

BOOL, INT, LIST, LONG, SHORT, STRING = Kind.BOOL, Kind.INT, Kind.LIST, Kind.LONG, Kind.SHORT, Kind.STRING
CLUSTER_WIDE = Live.CLUSTER_WIDE
MAX_INT = 2**31 - 1

# fmt: off
COORDINATION: tuple[Setting, ...] = (
    Setting("group.consumer.assignment.interval.ms", INT, 1000, least=0, live=CLUSTER_WIDE,
            doc="Pause between two assignments of a consumer group."),
    Setting("group.consumer.assignors", LIST, ("uniform", "range"),
            doc="Assignors of the consumer protocol, the default first."),
    Setting("group.consumer.heartbeat.interval.ms", INT, 5000, least=1,
            doc="How often members of the consumer protocol report."),
    Setting("group.consumer.max.size", INT, MAX_INT, least=1,
            doc="The most members of a group of the consumer protocol."),
    Setting("group.consumer.migration.policy", STRING, "bidirectional",
            choices=("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), any_case=True,
            doc="Which way groups may move between the classic and the consumer protocol."),
    Setting("group.consumer.regex.refresh.interval.ms", INT, 600_000, least=10000, hidden=True,
            doc="How often subscriptions by pattern are matched again."),
    Setting("group.consumer.session.timeout.ms", INT, 45000, least=1,
            doc="Silence after which a member of the consumer protocol is out."),
    Setting("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer", "streams"),
            choices=("consumer", "classic", "share", "streams"),
            doc="Group protocols that are switched on."),
    Setting("group.initial.rebalance.delay.ms", INT, 3000,
            doc="How long an empty classic group waits for more members."),
    Setting("group.max.session.timeout.ms", INT, 1_800_000, doc="Largest session timeout of a classic member."),
    Setting("group.max.size", INT, MAX_INT, least=1, doc="The most members of a classic group."),
    Setting("group.min.session.timeout.ms", INT, 6000, doc="Smallest session timeout of a classic member."),
    Setting("offset.metadata.max.bytes", INT, 4096, doc="The longest note that a commit may carry."),
    Setting("offsets.retention.check.interval.ms", LONG, 600_000, least=1,
            doc="How often committed offsets are looked at for expiry."),
    Setting("offsets.retention.minutes", INT, 10080, least=1,
            doc="How long the offsets of an empty group are kept."),
    Setting("offsets.topic.num.partitions", INT, 50, least=1, doc="Partitions of the offsets topic."),
    Setting("offsets.topic.replication.factor", SHORT, 3, least=1, doc="Replicas of the offsets topic."),
    Setting("offsets.topic.segment.bytes", INT, 104_857_600, least=1, doc="Segment size of the offsets topic."),
    Setting("transaction.max.timeout.ms", INT, 900_000, least=1,
            doc="Longest timeout that a transaction may ask for."),
    Setting("transaction.partition.verification.enable", BOOL, True, live=CLUSTER_WIDE,
            doc="Check that a partition belongs to a transaction before appending to it."),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, least=1,
            doc="How often forgotten transactional ids are removed."),
    Setting("transaction.state.log.min.isr", INT, 2, least=1,
            doc="In-sync replicas that the transaction topic asks for."),
    Setting("transaction.state.log.num.partitions", INT, 50, least=1, doc="Partitions of the transaction topic."),
    Setting("transaction.state.log.replication.factor", SHORT, 3, least=1,
            doc="Replicas of the transaction topic."),
    Setting("transaction.state.log.segment.bytes", INT, 104_857_600, least=1,
            doc="Segment size of the transaction topic."),
    Setting("transactional.id.expiration.ms", INT, 604_800_000, least=1,
            doc="How long an idle transactional id is remembered."),
)
# fmt: on
