"""How producers of the Python client end: brokers that go and come back, Ctrl-C, exit without close, forks."""

import gc
import signal
import subprocess
import sys
import textwrap
import threading
import weakref

import psutil
import pytest

from moldau.client.errors import Closed
from moldau.client.producer.producer import Producer
from support.brokers.processes import AnyBroker, CreateTopic, StartBroker
from support.clients.confluent import read_values
from support.eventually import eventually

S = 30.0
NOWHERE = "127.0.0.1:1"
PREAMBLE = """
import logging, os, sys, threading
from moldau.client.producer.producer import Producer
from moldau.client.producer import reports
logging.basicConfig()
bootstrap, topic = sys.argv[1:]
"""


def start(program: str, bootstrap: str, topic: str = "t") -> subprocess.Popen[str]:
    """Run a program that knows `bootstrap`, `topic` and `Producer`."""
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(program), bootstrap, topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        output, errors = process.communicate(timeout=S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"the process did not end: {process.communicate()}") from None
    return process.returncode, output, errors


# -- brokers that go and come back


def test_records_wait_for_a_broker_that_is_away(start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    own = start_broker()
    caplog.set_level("INFO", "moldau.client.producer")
    with Producer(own.bootstrap, properties={"reconnect.backoff.max.ms": 200}) as producer:
        producer.send("t", "before").result(S)
        own.kill()
        deliveries = [producer.send("t", str(number)) for number in range(100)]
        eventually(lambda: "can be reached; records wait" in caplog.text, "it says that brokers are away")
        assert not any(delivery.done() for delivery in deliveries)
        own.start()
        assert [delivery.result(S).offset for delivery in deliveries] == list(range(1, 101))
    assert read_values(own.bootstrap, "t") == ["before", *map(str, range(100))]
    lines = [record.getMessage() for record in caplog.records if record.name == "moldau.client.producer"]
    assert [line.split()[:2] for line in lines] == [["No", "broker"], ["Brokers", "of"]], "one line each"


# -- Ctrl-C


@pytest.mark.parametrize(
    "wait",
    [
        'producer.send(topic, "x").result()',
        'producer.send(topic, "x"); producer.flush()',
        'producer.send_many(topic, ["x"] * 10)',
        "producer.partitions(topic)",
        "transactional.transaction().begin()",
    ],
)
def test_ctrl_c_ends_every_wait(wait: str) -> None:
    process = start(
        f"""
        producer = Producer(bootstrap, buffer_messages=5, max_block=600, delivery_timeout=600)
        transactional = Producer(bootstrap, transactional_id="x", max_block=600)
        reports.EXIT_FLUSH_S = 0.1
        print("waiting", flush=True)
        {wait}
        """,
        NOWHERE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    # In the wait, and not before it: the main thread sleeps.
    main = psutil.Process(process.pid)
    eventually(lambda: main.status() == psutil.STATUS_SLEEPING, "it waits")
    process.send_signal(signal.SIGINT)
    code, _, errors = finish(process)
    assert "KeyboardInterrupt" in errors
    assert code == -signal.SIGINT


def test_ctrl_c_in_a_body_sends_what_is_in_the_buffer(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()
    process = start(
        """
        import signal
        with Producer(bootstrap, linger=1) as producer:
            producer.send(topic, "x")
            signal.raise_signal(signal.SIGINT)
        """,
        broker.bootstrap,
        topic,
    )
    code, _, errors = finish(process)
    assert (code, "KeyboardInterrupt" in errors) == (-signal.SIGINT, True)
    assert read_values(broker.bootstrap, topic) == ["x"]


# -- exit


def test_a_process_that_exits_without_close_sends_what_is_in_the_buffer(
    broker: AnyBroker, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    program = """
        producer = Producer(bootstrap, linger=0.5)
        for number in range(1000):
            producer.send(topic, str(number), on_delivery=lambda delivery: None)
        """
    code, _, errors = finish(start(program, broker.bootstrap, topic))
    assert (code, errors) == (0, "")
    assert read_values(broker.bootstrap, topic) == [str(number) for number in range(1000)]


def test_a_process_that_exits_without_close_or_broker_ends_soon_and_says_what_is_lost() -> None:
    program = """
        reports.EXIT_FLUSH_S = 0.2
        producer = Producer(bootstrap)
        producer.send(topic, "x")
        """
    code, _, errors = finish(start(program, NOWHERE))
    assert code == 0
    assert "A producer was not closed, and 1 records were not delivered before the process ended" in errors


def test_failures_that_nobody_saw_are_told_at_exit(broker: AnyBroker, create_topic: CreateTopic) -> None:
    small = create_topic(configs={"max.message.bytes": "1000"})
    program = """
        producer = Producer(bootstrap)
        producer.send(topic, "x" * 2000)
        """
    code, _, errors = finish(start(program, broker.bootstrap, small))
    assert code == 0
    assert "A producer was not closed: 1 record was not delivered" in errors


def test_a_producer_that_nobody_refers_to_sends_what_it_has_and_ends(
    broker: AnyBroker, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    producer = Producer(broker.bootstrap, linger=0.2)
    thread, gone = producer._reports._thread, weakref.ref(producer)
    delivery = producer.send(topic, "x")
    del producer
    gc.collect()
    assert gone() is None
    assert delivery.result(S).offset == 0
    thread.join(S)
    assert not thread.is_alive()


def test_no_thread_stays_behind(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic, before = create_topic(), set(threading.enumerate())
    for _ in range(3):
        with Producer(broker.bootstrap) as producer:
            producer.send(topic, "x")
    assert set(threading.enumerate()) <= before


def test_a_producer_is_not_for_child_processes(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()
    program = """
        from moldau.client.errors import Closed
        producer = Producer(bootstrap)
        pending = producer.send(topic, "of the parent")
        child = os.fork()
        if child == 0:
            for use in (lambda: producer.send(topic, "x"), pending.result, producer.flush):
                try:
                    use()
                except Closed as refused:
                    print(refused, flush=True)
            producer.close()
            with Producer(bootstrap) as own:
                own.send(topic, "of the child").result(30)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        pending.result(30)
        producer.close()
        """
    code, output, errors = finish(start(program, broker.bootstrap, topic))
    assert (code, errors) == (0, "")
    assert output.count("belongs to the parent process") >= 1
    assert sorted(read_values(broker.bootstrap, topic)) == ["of the child", "of the parent"]


def test_closing_while_others_send_and_wait(broker: AnyBroker, create_topic: CreateTopic) -> None:
    topic = create_topic()
    producer = Producer(broker.bootstrap)
    refused: list[str] = []
    sent = threading.Semaphore(0)

    def send() -> None:
        try:
            while True:
                producer.send(topic, b"x")
                producer.send_many(topic, [b"x"] * 100)
                sent.release()
        except Closed as error:
            refused.append(str(error))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert sent.acquire(timeout=S)
    producer.close()
    for thread in threads:
        thread.join(S)
    assert refused == ["the producer is closed"] * 4
