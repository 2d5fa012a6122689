"""The topic `_schemas`: a reader that follows it, and the writer of an elected registry. Decides nothing.

What fences a registry that is no longer the writer: all writers of a topic share one transactional id. A new one takes
it over, which aborts what the old one had begun and refuses what it sends from then on. Readers read committed.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.client.admin.target import Target
from moldau.client.errors import InvalidUse
from moldau.client.settings import LibraryLog, build
from moldau.services.registry.core.errors import Code, RegistryError
from moldau.services.registry.core.records import Record, UnknownRecord, read_record, write_key, write_value

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

logger = logging.getLogger("moldau.services.registry")

TOPIC: Final = "_schemas"
REPLICATION: Final = 3  # where there are as many brokers
BATCH: Final = 500
POLL_S: Final = 1.0
PAUSE_S: Final = 1.0
WRITE_S: Final = 15.0
TRANSACTION_S: Final = 20.0
CLIENT_ID: Final = "moldau-registry"


class Batch(NamedTuple):
    """Records in the order of the topic, and the offset after them."""

    records: list[Record]
    position: int
    at_end: bool
    restarted: bool = False  # the topic was truncated or created anew: what was read before is no more


Take = Callable[[Batch], None]  # blocks until the batch is applied


def client_properties(target: Target, **more: object) -> dict[str, object]:
    """librdkafka's configuration. Calls return their errors; without a callback of ours a fatal one breaks others."""
    own = {"client.id": CLIENT_ID, "logger": LibraryLog(), "error_cb": _note_error}
    return {**own, **target.properties, "bootstrap.servers": target.bootstrap, **more}


def _note_error(error: "KafkaError") -> None:
    logger.debug("librdkafka: %s", error.str())


class TopicReader:
    """A thread that reads the topic from its beginning and goes on reading."""

    def __init__(self, target: Target, topic: str, take: Take) -> None:
        self._target = target
        self._topic = topic
        self._take = take
        self._consumer: Consumer | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moldau-registry-reader", daemon=True)
        self._problem = ""
        self._first_end = 0
        self.cluster_id = ""
        self.ended = False  # by itself: the configuration is wrong, or a bug

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        self._stopping.set()
        self._thread.join(seconds)

    @property
    def problem(self) -> str:
        """Why reading does not go on; empty if it does."""
        return self._problem

    def end_offset(self, seconds: float) -> int:
        """The offset after the last committed record."""
        from confluent_kafka import KafkaException, TopicPartition

        if self._consumer is None:
            raise RegistryError(Code.STORE_ERROR, f"Topic {self._topic} is not read yet: {self._problem}. Try again.")
        try:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=seconds)
        except KafkaException as error:
            raise store_error("read the end of the topic", error) from error
        return int(end)

    # ── the thread ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and not self._prepare():
                self._stopping.wait(PAUSE_S)
            if not self._stopping.is_set():
                self._follow()
        except InvalidUse as problem:
            self._tell(str(problem))
        except Exception as bug:
            self._problem = f"reading topic {self._topic} ended with {bug!r}"
            logger.exception(
                "Reading topic %s ended; the registry answers nothing any more. This is a bug", self._topic
            )
        finally:
            self.ended = not self._stopping.is_set()

    def _follow(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        properties = client_properties(
            self._target,
            **{
                "group.id": f"{CLIENT_ID}-reader-{uuid.uuid4()}",  # librdkafka wants one; nothing is committed
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.error.backoff.ms": 100,
            },
        )
        consumer = build(Consumer, properties)
        try:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            self._consumer = consumer
            self._first_end = self._end_now()
            restarted = False
            while not self._stopping.is_set():
                restarted = self._read(consumer, restarted)
        finally:
            consumer.close()

    def _end_now(self) -> int:
        """Where the topic ends now, the position that a new reader must reach; others may write on and on."""
        while not self._stopping.is_set():
            try:
                return self.end_offset(POLL_S)
            except RegistryError as problem:
                self._tell(problem.message)
        return 0

    def _prepare(self) -> bool:
        try:
            self.cluster_id = ensure_topic(self._target, self._topic)
        except TopicRefused as problem:
            self._tell(str(problem))
            return False
        self._tell("")
        return True

    def _read(self, consumer: "Consumer", restarted: bool) -> bool:
        """Read and hand over a batch; returns whether the topic has to be read from its start."""
        from confluent_kafka import KafkaError, TopicPartition

        records: list[Record] = []
        position, at_end = -1, False
        first = consumer.poll(POLL_S)  # `consume` would wait for the whole batch
        for message in [] if first is None else [first, *consumer.consume(BATCH, 0)]:
            error, offset = message.error(), message.offset() or 0
            if error is None:
                position, at_end = offset + 1, False
                self._add(records, message)
            elif error.code() == KafkaError._PARTITION_EOF:
                position, at_end = offset, True
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                logger.warning("Topic %s starts anew; reading it again", self._topic)
                consumer.assign([TopicPartition(self._topic, 0, 0)])
                return True
            else:
                self._tell(f"reading topic {self._topic} failed: {error.str()}")
        if position >= 0:
            self._tell("")
            self._take(Batch(records, position, at_end or position >= self._first_end, restarted))
            return False
        return restarted

    def _add(self, records: list[Record], message: "Message") -> None:
        key, value = message.key(), message.value()
        if key is None:
            return
        try:
            records.append(read_record(key, value))
        except UnknownRecord as unknown:
            logger.info("Offset %d of %s is left out: %s", message.offset(), self._topic, unknown)

    def _tell(self, problem: str) -> None:
        """Note a problem, and log it once while it lasts."""
        if problem != self._problem:
            if problem:
                logger.warning("The schema registry waits: %s", problem)
            self._problem = problem


class TopicRefused(Exception):
    """The topic cannot be used, or not yet; the text says why and what to do."""


def ensure_topic(target: Target, topic: str) -> str:
    """Create the topic if it is not there: one partition, compacted. Returns the cluster's id; raises TopicRefused."""
    from moldau.client.admin.clients import Admin
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.errors import AdminError, Refused
    from moldau.client.admin.topics import create_topic

    cluster_id = ""
    try:
        with open_cluster(target) as cluster:
            answer = cluster.metadata([topic])
            brokers = len(cluster.ids)
        row, cluster_id = answer.topics[0], answer.cluster_id or ""
        if row.error_code == 0:
            if len(row.partitions) != 1:
                raise TopicRefused(f"topic {topic} has {len(row.partitions)} partitions, and must have one")
            return cluster_id
        create_topic(
            Admin(target),
            topic,
            partitions=1,
            replication=min(REPLICATION, brokers),
            configs={"cleanup.policy": "compact"},
        )
        logger.info("Created topic %s", topic)
    except AdminError as problem:
        if isinstance(problem, Refused) and problem.name == "TOPIC_ALREADY_EXISTS":
            return cluster_id  # another registry was faster
        raise TopicRefused(str(problem)) from problem
    return cluster_id


class WriterLost(Exception):
    """This registry can no longer write; whether the last records were written is unknown if `uncertain`."""

    def __init__(self, reason: str, *, uncertain: bool) -> None:
        super().__init__(reason)
        self.uncertain = uncertain


class TopicWriter:
    """Writes records in transactions. Blocking; one thread at a time."""

    def __init__(self, target: Target, topic: str) -> None:
        from confluent_kafka import KafkaException, Producer

        self._topic = topic
        properties = client_properties(
            target,
            **{
                "transactional.id": f"{CLIENT_ID}-{topic}",
                "transaction.timeout.ms": int(TRANSACTION_S * 1000),
                "linger.ms": 0,
            },
        )
        try:
            producer = build(Producer, properties)
        except InvalidUse as problem:
            raise WriterLost(str(problem), uncertain=False) from problem
        self._producer: Producer | None = producer
        try:
            producer.init_transactions(WRITE_S)
        except KafkaException as error:
            raise WriterLost(f"cannot become the writer: {reason_of(error)}", uncertain=False) from error

    def append(self, records: Sequence[Record]) -> int:
        """Write the records together and return the offset of the last one."""
        from confluent_kafka import KafkaException

        delivered: dict[int, int] = {}
        failed: list[KafkaError] = []

        def note(index: int) -> Callable[["KafkaError | None", "Message"], None]:
            def told(error: "KafkaError | None", message: "Message") -> None:
                if error is not None:
                    failed.append(error)
                else:
                    delivered[index] = message.offset() or 0

            return told

        producer = self._producer
        if producer is None:
            raise WriterLost("another registry writes", uncertain=False)
        committing = False
        try:
            producer.begin_transaction()
            for index, record in enumerate(records):
                key, value = write_key(record.key), write_value(record.value)
                producer.produce(self._topic, value, key, partition=0, on_delivery=note(index))
            producer.flush(WRITE_S)
            committing = not failed
            producer.commit_transaction(WRITE_S)
        except (KafkaException, BufferError) as error:
            raise self._failure(producer, error, failed, committing=committing) from error
        except SystemError as error:
            # librdkafka's binding raises fatal errors before it calls back, and the call back then ends in this.
            if not isinstance(error.__cause__, KafkaException):
                raise
            raise self._failure(producer, error.__cause__, failed, committing=committing) from error
        return delivered[len(records) - 1]

    def _failure(
        self,
        producer: "Producer",
        error: "KafkaException | BufferError",
        failed: "list[KafkaError]",
        *,
        committing: bool,
    ) -> Exception:
        """Abort what can be aborted; a refused record leaves the writer as it was."""
        from confluent_kafka import KafkaError, KafkaException

        cause = error.args[0]
        if not isinstance(cause, KafkaError):
            return WriterLost(str(error), uncertain=committing)
        too_large = any(each.code() == KafkaError.MSG_SIZE_TOO_LARGE for each in (cause, *failed))
        if not too_large and not cause.txn_requires_abort():
            return WriterLost(cause.str(), uncertain=committing)
        try:
            producer.abort_transaction(WRITE_S)
        except KafkaException as lost:
            return WriterLost(reason_of(lost), uncertain=committing)
        if too_large:
            message = f"The schema is larger than topic {self._topic} takes. Split it with references."
            return RegistryError(Code.SCHEMA_TOO_LARGE, message)
        reason = failed[-1].str() if failed else cause.str()
        return RegistryError(Code.STORE_ERROR, f"Topic {self._topic} refused the records: {reason}.")

    def close(self) -> None:
        """Forget the producer; an open transaction is aborted by the next writer, or by its timeout."""
        self._producer = None


def reason_of(error: "KafkaException") -> str:
    from confluent_kafka import KafkaError

    cause = error.args[0]
    return cause.str() if isinstance(cause, KafkaError) else str(cause)


def store_error(doing: str, error: "KafkaException") -> RegistryError:
    return RegistryError(Code.STORE_ERROR, f"Cannot {doing}: {reason_of(error)}. Try again.")
