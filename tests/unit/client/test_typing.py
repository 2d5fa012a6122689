"""What type checkers know of the client: a program of a user's passes mypy's strict mode, and its mistakes do not."""

import re
import subprocess
import sys
from pathlib import Path

from support.repository.sources import ROOT

PROGRAM = """
from dataclasses import dataclass

from confluent_kafka.serialization import StringDeserializer
from moldau import Consumer, Encrypted, Keys, Message, Producer, Serde, SerializerContext, serializers


@dataclass
class Order:
    id: str
    amount: int


def read(value: bytes | None, context: SerializerContext) -> Order:
    raise ValueError(context.topic)


class Table:
    def serialize(self, obj: Order, ctx: SerializerContext, /) -> bytes | None:
        return obj.id.encode()

    def deserialize(self, value: bytes | None, ctx: SerializerContext, /) -> Order:
        raise ValueError(ctx.topic)


serde: Serde[Order] = Table()
keys = Keys({"k": bytes(32)}, current="k")

for message in Consumer("b", "orders", group="g", value=Order):
    reveal_type(message)  # Message[bytes | None, Order]
    reveal_type(message.value.amount)  # int
    message.value.nothing  # error: "Order" has no attribute "nothing"

reveal_type(Consumer())  # Consumer[bytes | None, bytes | None]
reveal_type(Consumer(key=str, value=read))  # Consumer[str, Order]
reveal_type(Consumer(key=serializers.INTEGER, value=serializers.JSON))  # Consumer[int, Any]
reveal_type(Consumer(value=StringDeserializer()))  # Consumer[bytes | None, str | None]
reveal_type(Consumer(value=Encrypted(Order, keys=keys)))  # Consumer[bytes | None, Order]
reveal_type(Consumer(value=list[Order], key=serde))  # Consumer[Order, list[Order]]

producer = Producer(key=str, value=Order)
reveal_type(producer.send("orders", Order("a", 1), key="k").result().offset)  # int
producer.send("orders", "text")  # error: Argument 2 to "send" of "Producer" has incompatible type "str"
Producer().send("orders", {"any": "thing"}, key=5)
"""
SHOWN = re.compile(r":(\d+): (?:note: Revealed type is|(error):) (.*?)(?:  \[.*)?$", re.MULTILINE)
EXPECTED = re.compile(r"  # (error: )?(.*)$")


def test_a_program_is_typed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        str(program),
    ]  # strict in pyproject.toml: then the cache of `make check` serves
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = {int(line): (bool(error), _plain(text)) for line, error, text in SHOWN.findall(done.stdout)}
    expected = {}
    for number, line in enumerate(PROGRAM.splitlines(), start=1):
        if marked := EXPECTED.search(line):
            expected[number] = (bool(marked[1]), _plain(marked[2]))
    assert found.keys() == expected.keys(), done.stdout + done.stderr
    for line_number, (error, text) in expected.items():
        assert found[line_number][0] == error
        assert found[line_number][1].startswith(text), f"line {line_number}: {found[line_number][1]}"


def _plain(text: str) -> str:
    """Types without their modules."""
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", text.strip('"'))
