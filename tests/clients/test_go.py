"""franz-go against a broker, by way of the small program in go/: topics and records. Needs `go`."""

from pathlib import Path

import pytest

from support.brokers.disk import stored_batches
from support.brokers.processes import AnyBroker, CreateTopic
from support.clients.go import WITHOUT_GO, client
from support.log.batches import CODECS

pytestmark = WITHOUT_GO


@pytest.mark.parametrize("codec", CODECS)
def test_what_goes_in_comes_out(go_program: Path, broker: AnyBroker, create_topic: CreateTopic, codec: str) -> None:
    name = create_topic()
    assert client(go_program, "produce", broker, name, codec, 200) == list(range(200))
    stored = stored_batches(broker, name)
    assert {found.codec for found in stored} == {CODECS[codec]}
    assert all(found.producer_id >= 0 for found in stored), "franz-go is idempotent by default"
    found = client(go_program, "consume", broker, name, 0, 200)
    assert found == [
        {
            "Offset": number,
            "Timestamp": 1_600_000_000_000 + number,
            "Key": "key",
            "Value": f"a value that compresses, a value that compresses {number}",
            "Headers": ["source=franz-go"],
        }
        for number in range(200)
    ]
    assert [row["Offset"] for row in client(go_program, "consume", broker, name, 150, 50)] == list(range(150, 200))


def test_administration(go_program: Path, broker: AnyBroker, topic: str) -> None:
    told = client(go_program, "admin", broker, topic)
    assert (told["retention.ms"], told["max.message.bytes"]) == ("123456", "5000")
    assert (told["partitions"], told["ends"], told["deleted"]) == (3, 3, True)
    assert told["controller"] in told["brokers"]


def test_refusals(go_program: Path, broker: AnyBroker, create_topic: CreateTopic) -> None:
    name = create_topic(configs={"max.message.bytes": "1000"})
    assert client(go_program, "errors", broker, name) == {
        "created again": "TOPIC_ALREADY_EXISTS",
        "bad name": "INVALID_TOPIC_EXCEPTION",
        "deleted": "UNKNOWN_TOPIC_OR_PARTITION",
        "unknown": "UNKNOWN_TOPIC_OR_PARTITION",
        "too large": "MESSAGE_TOO_LARGE",
    }
