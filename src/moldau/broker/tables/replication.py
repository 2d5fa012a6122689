"""Broker settings of replication: how followers copy, when they are in sync, which replica a consumer reads from."""

from moldau.base.settings import Kind, Live, Setting

INT, LONG, STRING = Kind.INT, Kind.LONG, Kind.STRING
CLUSTER_WIDE = Live.CLUSTER_WIDE
MAX_LONG = 2**63 - 1
SELECTORS = (
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)

# fmt: off
REPLICATION: tuple[Setting, ...] = (
    Setting("follower.replication.throttled.rate", LONG, MAX_LONG, least=0, live=CLUSTER_WIDE, hidden=True,
            doc="Bytes per second that throttled followers fetch; a dynamic setting (KIP-73)."),
    Setting("leader.replication.throttled.rate", LONG, MAX_LONG, least=0, live=CLUSTER_WIDE, hidden=True,
            doc="Bytes per second that leaders send to throttled followers; a dynamic setting (KIP-73)."),
    Setting("num.replica.fetchers", INT, 1, least=1, live=CLUSTER_WIDE,
            doc="Replica fetchers per leader."),
    Setting("replica.fetch.backoff.ms", INT, 1000, least=0,
            doc="Longest pause after a failed replica fetch; the first pauses are shorter."),
    Setting("replica.fetch.max.bytes", INT, 1_048_576, least=0,
            doc="The most bytes that a replica fetch requests per partition; a larger batch is sent whole."),
    Setting("replica.fetch.min.bytes", INT, 1, doc="The bytes that a replica fetch waits for."),
    Setting("replica.fetch.response.max.bytes", INT, 10_485_760, least=0,
            doc="The most bytes of a replica fetch response."),
    Setting("replica.fetch.wait.max.ms", INT, 500, doc="Longest wait of a replica fetch."),
    Setting("replica.high.watermark.checkpoint.interval.ms", LONG, 5000,
            doc="How often high watermarks are written to disk."),
    Setting("replica.lag.time.max.ms", LONG, 30000,
            doc="How long a follower may lag before it leaves the in-sync replicas."),
    Setting("replica.selector.class", STRING, choices=SELECTORS,
            doc="Replica that consumers fetch from: the leader, or one in the consumer's rack."),
    Setting("replica.socket.timeout.ms", INT, 30000,
            doc="How long a follower waits for a fetch response, beyond replica.fetch.wait.max.ms."),
)
# fmt: on
