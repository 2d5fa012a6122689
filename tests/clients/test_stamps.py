"""A record that a producer wrote in two of its epochs: the chaos runs see that it is the client's doing, by the log."""

from chaos.access import Access
from chaos.checker import check
from chaos.history import Polled, Recorder, Send, Stamped
from chaos.stamps import stamp
from support.brokers.processes import AnyBroker
from support.clients.raw import RawClient
from support.log.batches import Producer, Written, batch


def test_a_record_that_is_there_twice_is_looked_up(broker: AnyBroker, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    for sequence, (epoch, value) in enumerate([(0, b"p.0"), (0, b"p.1"), (1, b"p.1"), (1, b"p.2")]):
        data = batch(Written(value), producer=Producer(4711, epoch), sequence=sequence - 2 * epoch)
        assert raw.produce(topic, data).error_code == 0
    recorder, place = Recorder(), f"{topic}/0"
    for value in ("p.0", "p.1", "p.2"):
        recorder.tell(Send, "p", place, value)
    recorder.tell(Polled, "last", place, ((0, "p.0"), (1, "p.1"), (2, "p.1"), (3, "p.2")))
    assert [each.kind for each in check(recorder.events)] == ["duplicate"]
    stamp(Access(broker.bootstrap), recorder, "last")
    found = [
        (each.offset, each.producer_id, each.producer_epoch) for each in recorder.events if isinstance(each, Stamped)
    ]
    assert found == [(1, 4711, 0), (2, 4711, 1)]
    assert check(recorder.events) == []
