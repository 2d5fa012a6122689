"""Outcomes and the thread that serves them: every listener is told once, whatever races with it. Needs no broker."""

import random
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message

from moldau.client.errors import ClientError, DeliveryFailed, KafkaFailure
from moldau.client.producer import reports as report_thread
from moldau.client.producer.delivery import Delivered, Delivery, DeliveryBatch
from moldau.client.producer.producer import Producer
from moldau.client.producer.reports import ReportThread
from support.eventually import eventually

S = 30.0
DONE = Message("t", 2, 5, None, None, None, None, (1, 77))
FAILED = KafkaError(KafkaError.INVALID_RECORD)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReportThread]:
    """Of a producer that has sent nothing: tests report outcomes themselves."""
    monkeypatch.setattr(report_thread, "TICK_S", S)
    with Producer("127.0.0.1:1") as producer:
        yield producer._reports
        producer._reports.listeners.take_unseen()


def test_an_outcome(reports: ReportThread) -> None:
    delivery = Delivery("t", reports)
    assert not delivery.done()
    assert "pending" in repr(delivery)
    delivery.settle(None, DONE)
    assert delivery.done()
    assert delivery.result() == Delivered("t", 2, 5, 77)
    assert delivery.exception() is None
    assert "offset=5" in repr(delivery)


def test_every_listener_is_told_once_while_records_are_reported(reports: ReportThread) -> None:
    """One thread reports, three others ask; in whichever order, nobody is forgotten or told twice."""
    deliveries = [Delivery("t", reports) for _ in range(3_000)]
    told: Counter[Delivery] = Counter()
    seen: list[object] = []

    def report() -> None:
        for number, delivery in enumerate(deliveries):
            delivery.settle(FAILED if number % 3 == 0 else None, DONE)

    def listen() -> None:
        for delivery in random.Random(1).sample(deliveries, len(deliveries)):
            delivery.add_done_callback(lambda each: told.update([each]))

    def wait() -> None:
        seen.extend(delivery.exception(S) for delivery in deliveries)

    threads = [threading.Thread(target=target) for target in (listen, wait, report, listen)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reports.flush(float("inf"))
    assert [error is not None for error in seen] == [number % 3 == 0 for number in range(3_000)]
    assert [told[delivery] for delivery in deliveries] == [2] * 3_000
    assert reports.listeners.take_unseen() is None


def test_failures_are_unseen_until_someone_looks(reports: ReportThread) -> None:
    deliveries = [Delivery("t", reports) for _ in range(5)]
    for delivery in deliveries:
        delivery.settle(FAILED, DONE)
    assert reports.listeners._unseen.count == 5
    assert isinstance(deliveries[0].exception(), KafkaFailure)
    with pytest.raises(KafkaFailure):
        deliveries[0].result()
    deliveries[1].add_done_callback(lambda _: None)
    assert reports.listeners._unseen.count == 3
    reports.listeners.take_unseen()
    assert deliveries[2].exception() is not None
    assert reports.listeners._unseen.count == 0, "they were told already"


def test_a_wait_that_timed_out_has_not_seen_the_failure(reports: ReportThread) -> None:
    delivery = Delivery("t", reports)
    assert not reports.wait(delivery, 0.001)
    delivery.settle(FAILED, DONE)
    assert reports.listeners._unseen.count == 1


def test_many_records_are_done_when_the_last_one_is(reports: ReportThread) -> None:
    batch = DeliveryBatch("t", 3, reports)
    for _ in range(3):
        assert not batch.done()
        batch.settle(None, DONE)
    batch.conclude(3)
    assert batch.result() == 3


def test_fewer_records_than_announced(reports: ReportThread) -> None:
    batch = DeliveryBatch("t", 3, reports)
    batch.settle(None, DONE)
    batch.refuse(KafkaFailure("A", "too large"))
    batch.settle(FAILED, DONE)
    assert not batch.done()
    batch.conclude(2)
    failed = batch.exception()
    assert isinstance(failed, DeliveryFailed)
    assert (failed.count, len(failed.errors)) == (2, 2)


def test_many_records_finish_once_while_the_sender_concludes(reports: ReportThread) -> None:
    for _ in range(50):
        batch, told = DeliveryBatch("t", 10, reports), threading.Semaphore(0)
        batch.add_done_callback(lambda _, told=told: told.release())

        def report(batch: DeliveryBatch = batch) -> None:
            for _ in range(5):
                batch.settle(FAILED, DONE)

        thread = threading.Thread(target=report)
        thread.start()
        batch.conclude(5)
        assert isinstance(batch.exception(S), DeliveryFailed)
        thread.join()
        reports.flush(float("inf"))
        assert told.acquire(blocking=False)
        assert not told.acquire(blocking=False)
    assert reports.listeners.take_unseen() is None


def test_a_sender_takes_turns_with_the_thread(reports: ReportThread) -> None:
    """While a sender serves reports, calls of callbacks and waits of others do not starve."""
    delivery, called = Delivery("t", reports), threading.Event()
    delivery.add_done_callback(lambda _: called.set())
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            reports.serve()

    sender = threading.Thread(target=serve)
    sender.start()
    delivery.settle(None, DONE)
    assert called.wait(S)
    stop.set()
    sender.join()


def test_a_report_that_was_lost_is_noticed(reports: ReportThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may be raised inside of a delivery report, if the main thread serves it."""
    monkeypatch.setattr(report_thread, "TICK_S", 0.01)
    with pytest.raises(ClientError, match="report was lost"):
        Delivery("t", reports).result()


def test_an_error_inside_of_a_poll_does_not_end_the_thread(
    reports: ReportThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def fail(timeout: float) -> None:
        failed.set()
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(reports, "_poll", fail)
        assert failed.wait(S)
        eventually(lambda: "could not be served" in caplog.text, "it is logged")
    called = threading.Event()
    reports.call_later(called.set)
    assert called.wait(S)
