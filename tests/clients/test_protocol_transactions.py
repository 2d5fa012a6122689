"""The transaction coordinator over a raw socket: who may begin, add and end. All of it holds on Apache Kafka too."""

import time

import pytest

from support.brokers.processes import AnyBroker, BrokerProcess, CreateTopic
from support.clients.raw import RawClient
from support.clients.raw_transactions import CONCURRENT_TRANSACTIONS, RawTransactions, listed, settled
from support.log.batches import Producer

NONE, UNKNOWN_TOPIC, TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST = 0, 3, 29, 42
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, INVALID_TRANSACTION_TIMEOUT = 47, 48, 49, 50
OPERATION_NOT_ATTEMPTED, PRODUCER_FENCED, TRANSACTIONAL_ID_NOT_FOUND, TRANSACTION_ABORTABLE = 55, 90, 105, 120
INVALID_REGULAR_EXPRESSION = 128
OLD, NEW = 4, 5  # versions of EndTxn: with the second the epoch rises with every transaction (KIP-890)


@pytest.fixture
def txn(raw: RawClient, topic: str) -> RawTransactions:
    return RawTransactions(raw, f"txn-{topic}")


@pytest.fixture
def place(create_topic: CreateTopic) -> str:
    return create_topic(partitions=2)


def next_of(producer: Producer) -> Producer:
    return Producer(producer.id, producer.epoch + 1)


def reached(txn: RawTransactions, state: str) -> bool:
    """Whether the transaction comes to this state: markers may be written after the answer."""
    until = time.monotonic() + 30
    while txn.state() != state and time.monotonic() < until:
        time.sleep(0.02)
    return txn.state() == state


# -- InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_a_first_id_and_the_next_epoch(txn: RawTransactions, version: int) -> None:
    first = txn.start(version=version)
    assert first.epoch == 0
    assert txn.init(version=version) == (NONE, next_of(first))


def test_requests_that_make_no_sense(txn: RawTransactions, raw: RawClient) -> None:
    assert txn.init(timeout_ms=0).error == INVALID_TRANSACTION_TIMEOUT
    assert txn.init(timeout_ms=900_001) == (INVALID_TRANSACTION_TIMEOUT, Producer())
    assert txn.init(Producer(5, -1)).error == INVALID_REQUEST
    assert txn.init(Producer(-1, 5)).error == INVALID_REQUEST
    txn.id = ""
    assert txn.init().error == INVALID_REQUEST


def test_a_producer_goes_on_after_an_error(txn: RawTransactions) -> None:
    """KIP-360: with what it had it gets the next epoch, and the same again if the answer was lost."""
    first = txn.start()
    assert txn.init(first) == (NONE, next_of(first))
    assert txn.init(first) == (NONE, next_of(first))
    assert txn.init(next_of(first)).producer.epoch == 2
    assert txn.init(first).error == PRODUCER_FENCED
    assert txn.init(first, version=3).error == INVALID_PRODUCER_EPOCH
    assert txn.init(Producer(first.id + 1_000_000, 2)).error == PRODUCER_FENCED


@pytest.mark.parametrize("version", [OLD, NEW])
def test_another_instance_aborts_what_was_left_open(txn: RawTransactions, place: str, version: int) -> None:
    first = txn.start()
    txn.add(first, place)
    second = txn.start()
    assert second == Producer(first.id, 2)  # one epoch closed the door, the next one is the successor's
    assert txn.add(first, place) == [PRODUCER_FENCED]
    assert txn.end(first, True, version).error == PRODUCER_FENCED
    assert txn.end(first, True, 1).error == INVALID_PRODUCER_EPOCH


# -- adding partitions


@pytest.mark.parametrize("version", range(4))
def test_partitions_join(txn: RawTransactions, place: str, version: int) -> None:
    producer = txn.start()
    assert txn.add(producer, place, 0, version=version) == [NONE]
    assert txn.add(producer, place, 0, 1, version=version) == [NONE, NONE]
    found = txn.describe()
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", *producer)
    assert [(each.topic, sorted(each.partitions)) for each in found.topics] == [(place, [0, 1])]
    assert found.transaction_timeout_ms == 60_000
    assert abs(found.transaction_start_time_ms - time.time() * 1000) < 60_000
    fenced = INVALID_PRODUCER_EPOCH if version < 2 else PRODUCER_FENCED
    assert txn.add(next_of(producer), place, version=version) == [fenced]
    assert txn.add(Producer(producer.id + 1_000_000, 0), place, version=version) == [INVALID_PRODUCER_ID_MAPPING]


def test_if_one_partition_is_missing_none_is_added(txn: RawTransactions, place: str) -> None:
    producer = txn.start()
    assert sorted(txn.add(producer, place, 0, 7)) == [UNKNOWN_TOPIC, OPERATION_NOT_ATTEMPTED]
    assert txn.add(producer, f"{place}-missing") == [UNKNOWN_TOPIC]
    assert txn.add(producer, "__consumer_offsets") == [TOPIC_AUTHORIZATION_FAILED]
    assert txn.state() == "Empty"


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_and_add(txn: RawTransactions, place: str, version: int) -> None:
    """KIP-890."""
    producer = txn.start()
    abortable = TRANSACTION_ABORTABLE if version >= 5 else INVALID_TXN_STATE
    assert txn.add_as_broker(producer, place, 0, verify=True, version=version)[0] in (abortable, TRANSACTION_ABORTABLE)
    assert txn.add_as_broker(producer, place, 0, version=version) == [NONE]
    assert txn.add_as_broker(producer, place, 0, verify=True, version=version) == [NONE]
    assert txn.add_as_broker(next_of(producer), place, 0, verify=True, version=version) == [PRODUCER_FENCED]
    assert txn.add_as_broker(next_of(producer), place, 0, version=version) == [PRODUCER_FENCED]


@pytest.mark.parametrize("version", range(5))
def test_offsets_join(txn: RawTransactions, version: int, topic: str) -> None:
    producer = txn.start()
    assert txn.add_offsets(producer, f"group-{topic}", version) == NONE
    assert [each.topic for each in txn.describe().topics] == ["__consumer_offsets"]
    fenced = INVALID_PRODUCER_EPOCH if version < 2 else PRODUCER_FENCED
    assert txn.add_offsets(next_of(producer), f"group-{topic}", version) == fenced
    assert txn.end(producer, False, OLD).error == NONE
    assert reached(txn, "CompleteAbort")


# -- ending


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(5))
def test_the_older_protocol_keeps_the_epoch(txn: RawTransactions, place: str, version: int, commit: bool) -> None:
    producer = txn.start()
    for how in (True, False):
        assert txn.end(producer, how, version).error == INVALID_TXN_STATE  # nothing was begun
    txn.add(producer, place)
    assert txn.end(producer, commit, version).error == NONE
    assert settled(lambda: txn.end(producer, commit, version)).error == NONE
    assert txn.end(producer, not commit, version).error == INVALID_TXN_STATE
    assert txn.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert txn.describe().producer_epoch == producer.epoch


@pytest.mark.parametrize("commit", [True, False])
def test_the_newer_protocol_raises_the_epoch(txn: RawTransactions, place: str, commit: bool) -> None:
    producer = txn.start()
    txn.add(producer, place)
    assert txn.end(producer, commit) == (NONE, next_of(producer))
    assert settled(lambda: txn.end(producer, commit)) == (NONE, next_of(producer))
    assert txn.end(producer, not commit) == (INVALID_TXN_STATE, Producer())


def test_an_empty_transaction_may_be_aborted_but_not_committed(txn: RawTransactions, place: str) -> None:
    producer = txn.start()
    assert txn.end(producer, True) == (INVALID_TXN_STATE, Producer())
    for _ in range(2):
        assert txn.end(producer, False) == (NONE, next_of(producer))
        assert reached(txn, "CompleteAbort")
        producer = next_of(producer)
    assert commit_of_nothing(txn, producer) == INVALID_TXN_STATE
    txn.add(producer, place)
    assert txn.end(producer, True).error == NONE
    assert reached(txn, "CompleteCommit")
    assert commit_of_nothing(txn, next_of(producer)) == INVALID_TXN_STATE
    assert txn.end(next_of(producer), False).producer.epoch == producer.epoch + 2


def commit_of_nothing(txn: RawTransactions, producer: Producer) -> int:
    """Soon after a transaction ended the answer is "come again": records may be under way (decision 14)."""
    return int(settled(lambda: txn.end(producer, True), lambda answer: answer.error).error)


def test_a_late_end_does_not_end_the_next_transaction(txn: RawTransactions, place: str) -> None:
    producer = txn.start()
    txn.add(producer, place)
    txn.end(producer, True)
    assert settled(lambda: txn.add(next_of(producer), place)) == [NONE]
    assert txn.end(producer, True).error == PRODUCER_FENCED
    assert txn.end(producer, False).error == PRODUCER_FENCED
    assert txn.state() == "Ongoing"


@pytest.mark.parametrize("version", [OLD, NEW])
def test_strangers_end_nothing(txn: RawTransactions, place: str, version: int) -> None:
    producer = txn.start()
    txn.add(producer, place)
    assert txn.end(Producer(producer.id + 1_000_000, 0), True, version).error == INVALID_PRODUCER_ID_MAPPING
    assert txn.end(Producer(producer.id, 7), True, version).error == PRODUCER_FENCED
    txn.id = f"{txn.id}-unknown"
    assert settled(lambda: txn.end(producer, True, version)).error == INVALID_PRODUCER_ID_MAPPING
    assert txn.describe().error_code == TRANSACTIONAL_ID_NOT_FOUND
    txn.id = ""
    assert txn.end(producer, True, version).error == INVALID_REQUEST


def test_time_runs_out(txn: RawTransactions, place: str, short_waits: dict[str, int]) -> None:
    producer = txn.start(timeout_ms=300)
    assert txn.produce(producer, place, 0) == NONE
    assert reached(txn, "CompleteAbort")
    assert txn.describe().producer_epoch == 1
    assert txn.produce(producer, place, 1) == INVALID_PRODUCER_EPOCH
    assert txn.add(producer, place) == [PRODUCER_FENCED]
    assert txn.end(producer, True).error == INVALID_TXN_STATE
    assert txn.end(producer, False) == (NONE, next_of(producer))  # and so it learns of the new epoch
    assert txn.produce(next_of(producer), place, 0) == NONE


# -- records


@pytest.mark.parametrize("version", [9, 10, 11])
def test_records_of_the_older_protocol_need_an_announcement(txn: RawTransactions, place: str, version: int) -> None:
    producer = txn.start()
    refused = INVALID_TXN_STATE if version < 11 else TRANSACTION_ABORTABLE
    assert txn.produce(producer, place, 0, version=version) == refused
    txn.add(producer, place, 0)
    assert txn.produce(producer, place, 0, version=version) == NONE
    assert txn.produce(producer, place, 0, partition=1, version=version) == refused
    assert txn.end(producer, True, OLD).error == NONE
    assert reached(txn, "CompleteCommit")
    assert txn.produce(producer, place, 1, version=version) == refused  # late ones of an ended transaction


def test_records_of_the_newer_protocol_announce_themselves(txn: RawTransactions, place: str) -> None:
    producer = txn.start()
    assert txn.produce(producer, place, 0) == NONE
    assert txn.produce(producer, place, 0, partition=1) == NONE
    assert [sorted(each.partitions) for each in txn.describe().topics] == [[0, 1]]
    assert txn.end(producer, True).error == NONE
    assert reached(txn, "CompleteCommit")
    assert txn.produce(producer, place, 1) == INVALID_PRODUCER_EPOCH  # late: its epoch is over
    assert txn.produce(next_of(producer), place, 0) == NONE
    assert txn.describe().transaction_state == "Ongoing"


# -- looking, and mending


def test_lists_are_filtered(txn: RawTransactions, place: str, raw: RawClient) -> None:
    producer = txn.start()
    other = RawTransactions(raw, f"{txn.id}-other")
    other_producer = other.start()
    other.add(other_producer, place)

    def names(**filters: object) -> list[str]:
        answer = listed(raw, **filters)
        assert answer.error_code == NONE
        found = {each.transactional_id: each.transaction_state for each in answer.transaction_states}
        assert found.get(txn.id, "Empty") == "Empty"
        assert found.get(other.id, "Ongoing") == "Ongoing"
        return [name for name in (txn.id, other.id) if name in found]

    assert names() == [txn.id, other.id]
    assert names(states=["Ongoing"]) == [other.id]
    assert names(states=["Empty", "Ongoing"]) == [txn.id, other.id]
    assert names(producer_ids=[producer.id]) == [txn.id]
    assert names(states=["Ongoing"], duration_ms=3_600_000) == []
    assert names(pattern=".*-other") == [other.id]
    assert names(pattern="other") == []
    assert names(pattern="") == [txn.id, other.id]
    unknown = listed(raw, states=["Sleeping"])
    assert (list(unknown.unknown_state_filters), len(unknown.transaction_states)) == (["Sleeping"], 0)
    assert listed(raw, pattern="(").error_code == INVALID_REGULAR_EXPRESSION


def test_a_marker_by_hand_ends_a_transaction_in_its_partition(txn: RawTransactions, place: str, raw: RawClient) -> None:
    """What Kafka's tool does to transactions that hang."""
    older, producer = txn.start(), txn.start()
    assert txn.produce(producer, place, 0) == NONE
    assert txn.write_marker(producer, f"{place}-missing", False) == UNKNOWN_TOPIC
    assert txn.write_marker(older, place, False) == INVALID_PRODUCER_EPOCH
    assert txn.write_marker(producer, place, False, transaction_version=2) == INVALID_PRODUCER_EPOCH  # KIP-1228
    assert txn.write_marker(producer, place, False, version=1) == NONE
    assert raw.list_offset(place, -1).offset == 2  # the record and the marker


def test_a_second_transaction_begins_at_once_here(txn: RawTransactions, place: str, broker: AnyBroker) -> None:
    """Markers are written before EndTxn is answered, so nobody hears CONCURRENT_TRANSACTIONS."""
    if type(broker) is not BrokerProcess:
        pytest.skip("Apache Kafka answers EndTxn before it writes markers")
    producer = txn.start()
    for _ in range(50):
        assert txn.produce(producer, place, 0) == NONE
        answer = txn.end(producer, True)
        assert answer.error == NONE
        producer = answer.producer
    txn.produce(producer, place, 0)
    assert txn.init().error != CONCURRENT_TRANSACTIONS
