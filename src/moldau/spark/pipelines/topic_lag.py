"""QueryTopics: how far a query is behind its topics, by asking their brokers; and whether these answer at all.

It asks with the query's own options, so as securely as the query does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from moldau.base.ids import TopicPartition
from moldau.base.settings import SettingsRefused
from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import Cluster
from moldau.spark.cluster import QueryFailed, open_cluster
from moldau.spark.connection import Connection
from moldau.spark.defaults import with_defaults
from moldau.spark.options import ReadOptions, read_options, write_options
from moldau.spark.pipelines.interception import PlannedQuery
from moldau.spark.plans import FORMAT, SinkPlan, SourcePlan
from moldau.spark.query_groups import reached
from moldau.spark.source.offset_reader import OffsetReader

TIMEOUT_MS = 5000  # of a look, with all retries

EndOffsets = Sequence[str | None]  # of a query's sources, as JSON


@dataclass(frozen=True, slots=True)
class BrokerSilent:
    """A broker does not answer, or refuses; the reason is one sentence."""

    reason: str


@dataclass(slots=True)
class SilentBrokers:
    """Clusters that failed in this round of looks: they are not asked again for the next query."""

    known: list[tuple[Connection, BrokerSilent]] = field(default_factory=list)

    def of(self, connection: Connection) -> BrokerSilent | None:
        return next((failed for each, failed in self.known if each == connection), None)

    def add(self, connection: Connection, reason: str) -> BrokerSilent:
        self.known.append((connection, BrokerSilent(reason)))
        return self.known[-1][1]


class QueryTopics:
    """The topics that a query reads, and the cluster it writes to. Has a client for each; the caller closes it."""

    def __init__(self, planned: PlannedQuery) -> None:
        options = [_source_options(each) for each in planned.reads]
        self._connections = [None if each is None else each.connection for each in options]
        distinct: list[ReadOptions] = []
        for each in options:
            if each is not None and each not in distinct:
                distinct.append(each)
        self._readers = [(each.connection, OffsetReader(_impatient(each))) for each in distinct]
        self._target = _sink_connection(planned.writes)
        self._target_cluster: Cluster | None = None

    def behind(self, end_offsets: EndOffsets | None, silent: SilentBrokers) -> list[int] | BrokerSilent | None:
        """Offsets behind the log end, per partition. None if the query has no offsets yet, or no topics."""
        found: list[int] = []
        for connection, reader in self._readers:
            failed = silent.of(connection)
            if failed is not None:
                return failed
            try:
                at = {} if end_offsets is None else reached(connection, self._connections, end_offsets)
                found += _behind(reader, at)
            except QueryFailed as reason:
                reader.close()  # the next look starts with a new connection
                return silent.add(connection, str(reason))
        return self._try_target(silent) or (found if self._readers and end_offsets is not None else None)

    def _try_target(self, silent: SilentBrokers) -> BrokerSilent | None:
        if self._target is None or any(self._target == connection for connection, _ in self._readers):
            return None
        failed = silent.of(self._target)
        if failed is not None:
            return failed
        if self._target_cluster is None:
            self._target_cluster = open_cluster(self._target, timeout_ms=TIMEOUT_MS)
        described = self._target_cluster.describe([])
        return silent.add(self._target, str(described)) if isinstance(described, Failure) else None

    def close(self) -> None:
        for _, reader in self._readers:
            reader.close()
        if self._target_cluster is not None:
            self._target_cluster.close()


def _behind(reader: OffsetReader, at: Mapping[TopicPartition, int]) -> list[int]:
    ends = reader.latest(reader.partitions(missing=True).partitions)
    starts = {**reader.earliest(ends.keys() - at.keys()), **at}  # a new partition is read from its start
    return [max(0, end - starts.get(tp, end)) for tp, end in sorted(ends.items())]


def _impatient(options: ReadOptions) -> ReadOptions:
    """The options for a look; warnings about options are the query's own business."""
    timeout_ms = min(TIMEOUT_MS, options.connection.request_timeout_ms)
    connection = replace(options.connection, request_timeout_ms=timeout_ms)
    return replace(options, connection=connection, offset_patience_ms=0, without_effect=())


def _source_options(reads: SourcePlan) -> ReadOptions | None:
    """None for another format, and for options that the query itself refuses."""
    if reads.format != FORMAT:
        return None
    try:
        return read_options(with_defaults(reads.options, stream=True), stream=True)
    except SettingsRefused:
        return None


def _sink_connection(writes: SinkPlan) -> Connection | None:
    if writes.format != FORMAT:
        return None
    try:
        return write_options(with_defaults(writes.options)).connection
    except SettingsRefused:
        return None
