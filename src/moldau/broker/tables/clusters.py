"""Broker settings of clusters that mean something here: the ensemble, and what a controller does."""

from moldau.base.settings import Kind, Live, Setting

BOOL, INT, LIST, LONG, STRING = Kind.BOOL, Kind.INT, Kind.LIST, Kind.LONG, Kind.STRING

# fmt: off
CLUSTERS: tuple[Setting, ...] = (
    Setting("auto.leader.rebalance.enable", BOOL, True,
            doc="Give leadership back to preferred replicas in the background."),
    Setting("controlled.shutdown.enable", BOOL, True, doc="Hand leadership over before stopping."),
    Setting("cordoned.log.dirs", LIST, (), live=Live.PER_BROKER,
            doc="Data directories that get no new replicas. Set to * while a broker runs, it gets none at all."),
    Setting("leader.imbalance.check.interval.seconds", LONG, 300, least=1,
            doc="How often the balance of leaders is looked at."),
    Setting("leader.imbalance.per.broker.percentage", INT, 10, least=0,
            doc="A broker gets its leadership back when it lacks more than this share of what it preferably leads."),
    Setting("zookeeper.connect", STRING,
            doc="The ZooKeeper ensemble of the cluster, as host:port,host:port/path; without it, a node of its own."),
    Setting("zookeeper.connection.timeout.ms", INT, least=1,
            doc="How long a start waits for ZooKeeper to answer first; without it, zookeeper.session.timeout.ms."),
    Setting("zookeeper.session.timeout.ms", INT, 18000, least=1,
            doc="Silence after which ZooKeeper gives a broker up. A process that died is noticed sooner."),
)
# fmt: on
