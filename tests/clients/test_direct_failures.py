"""The direct client while its broker is killed and comes back: nothing is lost, nothing comes twice, nothing hangs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from moldau.base.ids import TopicPartition
from moldau.client.direct.fetch import FetchedBatches, FetchSizes, read_range
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.offsets import LATEST, READ_COMMITTED, OffsetAndTimestamp, list_offsets
from moldau.client.direct.produce import Producer
from moldau.client.direct.records import decode
from moldau.client.direct.transactions import TransactionalProducer
from support.brokers.processes import BrokerProcess
from support.clients.raw import RawClient

KILLS = 3
PARTITIONS = 3
TIMEOUT_S = 120  # a broker on a busy machine takes its time to come back


@contextmanager
def killed_again_and_again(broker: BrokerProcess) -> Iterator[threading.Thread]:
    """Kills the broker without a word and starts it anew, some times, in the background."""

    def work() -> None:
        for _ in range(KILLS):
            broker.kill()
            broker.start()

    thread = threading.Thread(target=work)
    thread.start()
    yield thread
    thread.join()


def values_of(cluster: Cluster, partition: int, isolation: int = READ_COMMITTED) -> list[bytes | None]:
    place = TopicPartition("t", partition)
    end = list_offsets(cluster, {place: LATEST}, isolation=isolation)[place]
    assert isinstance(end, OffsetAndTimestamp), end
    found: list[bytes | None] = []
    for chunk in read_range(cluster, place, 0, end.offset, isolation=isolation):
        assert isinstance(chunk, FetchedBatches), chunk
        found += decode(chunk.batches, end=end.offset).values
    return found


def test_a_producer_whose_broker_is_killed_writes_everything_once_and_in_order(own_broker: BrokerProcess) -> None:
    with RawClient(own_broker.bootstrap) as raw:
        raw.create_topic("t", PARTITIONS)
    with Cluster(own_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster, Producer(cluster, batch_bytes=2000) as producer:
        assert producer.start() is None
        written: list[bytes | None] = []
        with killed_again_and_again(own_broker) as trouble:
            while trouble.is_alive():
                more = [b"%d" % number for number in range(len(written), len(written) + 300)]
                places = [number % PARTITIONS for number in range(300)]
                assert (producer.write("t", more, more, partitions=places) or producer.flush()) is None
                written += more
        assert producer.written == len(written)
        for partition in range(PARTITIONS):
            assert values_of(cluster, partition) == written[partition::PARTITIONS]


def test_transactions_of_a_broker_that_is_killed_count_whole_or_not_at_all(own_broker: BrokerProcess) -> None:
    with RawClient(own_broker.bootstrap) as raw:
        raw.create_topic("t", PARTITIONS)
    with (
        Cluster(own_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster,
        TransactionalProducer(cluster, "it", batch_bytes=1000) as producer,
    ):
        assert producer.start() is None
        rounds = 0
        committed: list[int] = []
        with killed_again_and_again(own_broker) as trouble:
            while trouble.is_alive() or rounds < KILLS:
                values = [b"%d-%d" % (rounds, number) for number in range(90)]
                places = [number % PARTITIONS for number in range(90)]
                ended = producer.write("t", values, values, partitions=places) or (
                    producer.abort() if rounds % 3 == 1 else producer.commit()
                )
                assert ended is None, ended
                if rounds % 3 != 1:
                    committed.append(rounds)
                rounds += 1
        for partition in range(PARTITIONS):
            wanted = [b"%d-%d" % (each, number) for each in committed for number in range(partition, 90, PARTITIONS)]
            assert values_of(cluster, partition) == wanted


def test_a_reader_whose_broker_is_killed_reads_on(own_broker: BrokerProcess) -> None:
    with RawClient(own_broker.bootstrap) as raw:
        raw.create_topic("t")
    written: list[bytes | None] = [b"%d" % number for number in range(20_000)]
    with Cluster(own_broker.bootstrap, timeout_s=TIMEOUT_S) as cluster, Producer(cluster, batch_bytes=1000) as producer:
        assert (producer.start() or producer.write("t", written, written) or producer.flush()) is None
        read: list[bytes | None] = []
        kills = 0
        for chunk in read_range(cluster, TopicPartition("t", 0), 0, len(written), sizes=FetchSizes(20_000)):
            assert isinstance(chunk, FetchedBatches), chunk
            read += decode(chunk.batches, end=len(written)).values
            if len(read) >= (kills + 1) * 4000 and kills < KILLS:
                own_broker.kill()
                own_broker.start()
                kills += 1
        assert read == written
        assert kills == KILLS
