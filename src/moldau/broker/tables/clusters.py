"""Broker settings of clusters that are used here: the ensemble and the controller."""

from moldau.base.settings import Kind, Live, Setting

BOOL, INT, LIST, LONG, STRING = Kind.BOOL, Kind.INT, Kind.LIST, Kind.LONG, Kind.STRING

# fmt: off
CLUSTERS: tuple[Setting, ...] = (
    Setting("auto.leader.rebalance.enable", BOOL, True,
            doc="Elect preferred leaders in the background."),
    Setting("controlled.shutdown.enable", BOOL, True, doc="Move leadership to other brokers before stopping."),
    Setting("cordoned.log.dirs", LIST, (), live=Live.PER_BROKER,
            doc="Data directories that get no new replicas. Set to * while a broker runs, it gets none at all."),
    Setting("leader.imbalance.check.interval.seconds", LONG, 300, least=1,
            doc="How often leader imbalance is checked."),
    Setting("leader.imbalance.per.broker.percentage", INT, 10, least=0,
            doc="Preferred leaders are elected if a broker lacks more than this share of the leadership it prefers."),
    Setting("zookeeper.connect", STRING,
            doc="The ZooKeeper ensemble of the cluster, as host:port,host:port/path; without it, a single node."),
    Setting("zookeeper.connection.timeout.ms", INT, least=1,
            doc="How long a start waits for a connection to ZooKeeper; without it, zookeeper.session.timeout.ms."),
    Setting("zookeeper.session.timeout.ms", INT, 18000, least=1,
            doc="Session timeout of a broker in ZooKeeper. A dead process is noticed sooner."),
)
# fmt: on
