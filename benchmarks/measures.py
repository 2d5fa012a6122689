"""The tables of workloads (one round on one broker) and of measures (figures from them).

Every round makes its own topic and deletes it, so the rounds do not see each other. Knows nothing of printing.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from benchmarks import drive, topics
from benchmarks.jars import Jars
from benchmarks.peers import Kind, Peer, running

PARTITIONS = 5
OWNED = 5  # partitions of a member that commits
MEMBERS = 100  # of a group that rebalances, on as many partitions
MIB = 1 << 20
BATCH_RECORDS_100 = 150  # 100-byte records in a batch of 16 KB, the default of the clients

Better = Literal["higher", "lower"]
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of records, or of what else a workload counts; `--quick` only checks that everything runs."""

    warm_up: int
    produce: int
    produce_large: int
    produce_single: int
    consume: int
    latency_s: int
    memory: int
    commits: int
    transactions: int
    rebalances: int


FULL = Sizes(
    warm_up=2_000_000, produce=4_000_000, produce_large=1_000_000, produce_single=300_000, consume=5_000_000,
    latency_s=30, memory=10_000_000, commits=40_000, transactions=6_000, rebalances=9,
)  # fmt: skip
QUICK = Sizes(
    warm_up=50_000, produce=200_000, produce_large=50_000, produce_single=20_000, consume=300_000, latency_s=4,
    memory=200_000, commits=2_000, transactions=400, rebalances=1,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    """What a workload needs in addition to its broker."""

    jars: Jars | None
    sizes: Sizes
    workdir: Path
    consumer: str


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    says: str
    run: Callable[[Setting, Peer], Figures]


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of the report: a figure of a workload, and the ratio to Apache Kafka that it must reach."""

    name: str
    title: str
    workload: str
    figure: str
    unit: str
    better: Better
    floor: float | None
    shown: bool = True  # in the chart


def _produce(records: Callable[[Sizes], int], record_size: int, **settings: str) -> Callable[[Setting, Peer], Figures]:
    properties = {key.replace("_", "."): value for key, value in settings.items()}

    def run(setting: Setting, peer: Peer) -> Figures:
        count = records(setting.sizes)
        return produce(setting, peer, drive.ProduceLoad(count, record_size, warm_up=count // 4, settings=properties))

    return run


def produce(setting: Setting, peer: Peer, load: drive.ProduceLoad, *, to: drive.Served | None = None) -> Figures:
    """One round; `to` is another listener of the broker than PLAINTEXT."""
    with topics.topic(peer, PARTITIONS) as topic:
        before = peer.cpu_seconds()
        result = drive.produce(setting.jars, to or peer, topic, load)
        return {**asdict(result), **_cost(peer, before, load.records)}


def consume(
    setting: Setting, peer: Peer, *, source: drive.Served | None = None, settings: Mapping[str, str] | None = None
) -> Figures:
    """One round; `source` is another listener of the broker than PLAINTEXT, `settings` are librdkafka's for it."""
    with topics.topic(peer, PARTITIONS) as topic:
        count = topics.fill(peer, topic, records=setting.sizes.consume, value_size=100, batch_records=BATCH_RECORDS_100)
        before = peer.cpu_seconds()
        result = drive.consume(source or peer, topic, count, tool=setting.consumer, settings=settings)
        figures = {"records_per_s": result.records_per_s, "client_cpu_s": result.client_cpu_s}
        return {**figures, **_cost(peer, before, count)}


def _latency_java(setting: Setting, peer: Peer) -> Figures:
    if setting.jars is None:
        return {}
    rate = 2_000
    load = drive.ProduceLoad(
        rate * setting.sizes.latency_s, 100, warm_up=rate * setting.sizes.latency_s // 3, throughput=rate,
        settings={"linger.ms": "0"},
    )  # fmt: skip
    with topics.topic(peer, PARTITIONS) as topic:
        return asdict(drive.produce(setting.jars, peer, topic, load))


def _latency_librdkafka(setting: Setting, peer: Peer) -> Figures:
    with topics.topic(peer, PARTITIONS) as topic:
        return drive.latency(peer, topic, rate=2_000, seconds=setting.sizes.latency_s)


def _coordinated(mode: str, clients: int, count: Callable[[Sizes], int]) -> Callable[[Setting, Peer], Figures]:
    """Commits or transactions, after a warm-up of a third as many, because Java is slow at first."""

    def run(setting: Setting, peer: Peer) -> Figures:
        if setting.jars is None or not setting.jars.compiles:
            return {}
        each = count(setting.sizes) // clients
        load = drive.CoordinatedLoad(mode, clients, each // 3, each)
        with topics.topic(peer, OWNED * clients) as topic:
            before = peer.cpu_seconds()
            result = drive.coordinated(setting.jars, peer, topic, load)
            used = peer.cpu_seconds() - before
        return {**result, "cpu_s": used, "cpu_us": used / clients / (load.warm_up + load.count) * 1e6}

    return run


def _rebalance(protocol: str) -> Callable[[Setting, Peer], Figures]:
    def run(setting: Setting, peer: Peer) -> Figures:
        with topics.topic(peer, MEMBERS) as topic:
            return drive.rebalance(peer, topic, protocol=protocol, members=MEMBERS, times=setting.sizes.rebalances)

    return run


def _memory(setting: Setting, peer: Peer) -> Figures:
    """Use a separate broker, so that the figure is for these records alone."""
    load = drive.ProduceLoad(setting.sizes.memory, 100)
    with running(peer.kind, setting.workdir, peer.label) as fresh:
        idle = fresh.rss_bytes()
        drive.produce(setting.jars, fresh, topics.create(fresh, PARTITIONS), load)
        return {"rss_mb": fresh.rss_bytes() / MIB, "idle_rss_mb": idle / MIB}


def _ready(setting: Setting, peer: Peer) -> Figures:
    with running(peer.kind, setting.workdir, peer.label) as fresh:
        return {"ready_s": fresh.ready_s}


def _cost(peer: Peer, cpu_before_s: float, records: int) -> Figures:
    used = peer.cpu_seconds() - cpu_before_s
    return {"cpu_s": used, "cpu_us_per_record": used / records * 1e6, "rss_after_mb": peer.rss_bytes() / MIB}


WORKLOADS = (
    Workload(
        "produce-acks1",
        "ProducerPerformance, 100 B, 5 partitions, acks=1, defaults otherwise",
        _produce(lambda sizes: sizes.produce, 100, acks="1", enable_idempotence="false"),
    ),
    Workload(
        "produce-idempotent",
        "ProducerPerformance, 100 B, 5 partitions, its defaults: acks=all, idempotent",
        _produce(lambda sizes: sizes.produce, 100, acks="all", enable_idempotence="true"),
    ),
    Workload(
        "produce-1k",
        "ProducerPerformance, 1 KB, 5 partitions, batch.size=131072, acks=1",
        _produce(lambda sizes: sizes.produce_large, 1_000, acks="1", enable_idempotence="false", batch_size="131072"),
    ),
    Workload(
        "produce-single",
        "ProducerPerformance, 100 B, 5 partitions, one record per batch: batch.size=1 linger.ms=0, acks=1",
        _produce(
            lambda sizes: sizes.produce_single, 100, acks="1", enable_idempotence="false", batch_size="1", linger_ms="0"
        ),
    ),
    Workload(
        "consume", "librdkafka reads 100 B records of 5 partitions in batches of 16 KB, all in page cache", consume
    ),
    Workload("latency", "ProducerPerformance at 2,000 records/s, linger.ms=0, its defaults otherwise", _latency_java),
    Workload("latency-librdkafka", "librdkafka at 2,000 records/s, linger.ms=0, acks=1", _latency_librdkafka),
    Workload(
        "commit",
        "KafkaConsumer, one member with 5 partitions: commitSync in a loop",
        _coordinated("commit", 1, lambda sizes: sizes.commits // 4),
    ),
    Workload(
        "commit-4",
        "KafkaConsumer, 4 members with 5 partitions each: commitSync in a loop",
        _coordinated("commit", 4, lambda sizes: sizes.commits),
    ),
    Workload(
        "transact",
        "KafkaProducer, one: transactions of 10 records of 100 B on 3 partitions",
        _coordinated("transact", 1, lambda sizes: sizes.transactions // 3),
    ),
    Workload(
        "transact-4",
        "KafkaProducer, 4: transactions of 10 records of 100 B on 3 partitions",
        _coordinated("transact", 4, lambda sizes: sizes.transactions),
    ),
    Workload(
        "transact-offsets",
        "KafkaProducer, one: the same, and the offset of a consumer group in each",
        _coordinated("transact-offsets", 1, lambda sizes: sizes.transactions // 3),
    ),
    Workload(
        "rebalance-classic", "raw members: 50 join 50 others, classic protocol, 100 partitions", _rebalance("classic")
    ),
    Workload("rebalance-consumer", "raw members: 50 join 50 others, KIP-848, 100 partitions", _rebalance("consumer")),
    Workload("memory", "a fresh broker, ProducerPerformance with its defaults", _memory),
    Workload("ready", "from the start of the process on an empty directory to its first ApiVersions answer", _ready),
)

MEASURES = (
    Measure("produce-acks1", "produce 100 B, acks=1", "produce-acks1", "records_per_s", "records/s", "higher", 1.3),
    Measure(
        "produce-idempotent", "produce 100 B, idempotent acks=all", "produce-idempotent", "records_per_s",
        "records/s", "higher", 1.3,
    ),
    Measure("produce-1k", "produce 1 KB, 128 KB batches", "produce-1k", "records_per_s", "records/s", "higher", 1.0),
    Measure(
        "produce-single", "produce, one record per batch", "produce-single", "records_per_s", "records/s", "higher", 1.1
    ),
    Measure("consume", "consume 100 B, librdkafka", "consume", "records_per_s", "records/s", "higher", 1.0),
    Measure("cpu-produce", "CPU per record, produce", "produce-acks1", "cpu_us_per_record", "µs", "lower", 0.7),
    Measure(
        "cpu-idempotent", "CPU per record, idempotent", "produce-idempotent", "cpu_us_per_record", "µs", "lower", 0.7,
        shown=False,
    ),
    Measure("cpu-1k", "CPU per record, 1 KB", "produce-1k", "cpu_us_per_record", "µs", "lower", None, shown=False),
    Measure(
        "cpu-single", "CPU per record, one per batch", "produce-single", "cpu_us_per_record", "µs", "lower", None,
        shown=False,
    ),
    Measure("cpu-consume", "CPU per record, consume", "consume", "cpu_us_per_record", "µs", "lower", 0.7),
    Measure("p99", "p99 at 2,000 records/s", "latency", "p99_ms", "ms", "lower", 1.0),
    Measure(
        "p99-librdkafka", "p99 at 2,000 records/s, librdkafka", "latency-librdkafka", "p99_ms", "ms", "lower", None,
        shown=False,
    ),
    Measure("commit", "commits, one member", "commit", "per_s", "commits/s", "higher", 1.0),
    Measure("commit-4", "commits, 4 members", "commit-4", "per_s", "commits/s", "higher", 1.0),
    Measure("transact", "transactions, one producer", "transact", "per_s", "transactions/s", "higher", 1.0),
    Measure("transact-4", "transactions, 4 producers", "transact-4", "per_s", "transactions/s", "higher", 1.0),
    Measure(
        "transact-offsets", "transactions with offsets", "transact-offsets", "per_s", "transactions/s", "higher", 1.0
    ),
    Measure(
        "rebalance-classic", "rebalance, 100 members, classic", "rebalance-classic", "rebalance_ms", "ms", "lower", 1.0
    ),
    Measure(
        "rebalance-consumer", "rebalance, 100 members, KIP-848", "rebalance-consumer", "rebalance_ms", "ms", "lower",
        1.0,
    ),
    Measure("cpu-commit", "CPU per commit", "commit-4", "cpu_us", "µs", "lower", None),
    Measure("cpu-transact", "CPU per transaction", "transact-4", "cpu_us", "µs", "lower", None),
    Measure(
        "cpu-transact-offsets", "CPU per transaction with offsets", "transact-offsets", "cpu_us", "µs", "lower", None,
        shown=False,
    ),
    Measure(
        "cpu-rebalance-classic", "CPU per rebalance, classic", "rebalance-classic", "cpu_ms", "ms", "lower", None,
        shown=False,
    ),
    Measure(
        "cpu-rebalance-consumer", "CPU per rebalance, KIP-848", "rebalance-consumer", "cpu_ms", "ms", "lower", None,
        shown=False,
    ),
    Measure("memory", "resident memory after 10 M records", "memory", "rss_mb", "MB", "lower", 0.1),
    Measure("ready", "ready after start", "ready", "ready_s", "s", "lower", 0.1),
)  # fmt: skip

CHECKS: Mapping[str, str] = {
    "Moldau": "the header of every batch, its CRC-32C, sizes, record count, timestamps, sequence; records stay closed",
    "Apache Kafka": "the same, and it also walks (and, if compressed, decompresses) the records of every batch",
}


def warm_up(setting: Setting, peer: Peer) -> None:
    """Produces and consumes once, so that neither a cold JIT nor cold caches are measured."""
    count = setting.sizes.warm_up
    with topics.topic(peer, PARTITIONS) as topic:
        drive.produce(setting.jars, peer, topic, drive.ProduceLoad(count, 100))
        drive.consume(peer, topic, count, tool=setting.consumer)


def chosen(only: list[str]) -> list[Measure]:
    """The measures with one of these names or workloads; all if there are none."""
    return [measure for measure in MEASURES if not only or {measure.name, measure.workload} & set(only)]


def workloads_of(measures: list[Measure]) -> list[Workload]:
    needed = {measure.workload for measure in measures}
    return [workload for workload in WORKLOADS if workload.name in needed]


def peers_of(ours: Kind, theirs: Kind | None) -> tuple[tuple[str, Kind], ...]:
    return (("ours", ours),) if theirs is None else (("ours", ours), ("theirs", theirs))
