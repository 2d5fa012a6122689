"""The frames between a broker and its record workers: a head of JSON and a body of bytes, each with its length. Pure.

A request has the name of the rules, or the rules themselves where the worker does not know them yet; its body is a
batch. The response tells what became of it.
"""

import json
from struct import Struct
from typing import Any, Final, NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.replication.record_checks import Checked

LENGTHS: Final = Struct(">II")  # of head and body
READY: Final = b"+"  # before the first response: the worker has started


def pack(head: Any, *bodies: bytes) -> list[bytes]:
    packed = json.dumps(head).encode()
    return [LENGTHS.pack(len(packed), sum(map(len, bodies))), packed, *bodies]


class Request(NamedTuple):
    rules: str  # their name
    partition: int
    definition: str | None = None  # the rules, packed; None: the worker has them
    forget: bool = False  # all other rules first

    @classmethod
    def read(cls, head: bytes) -> "Request":
        return cls(*json.loads(head))


def pack_response(checked: Checked) -> list[bytes]:
    refusal, batch, letters = checked.refusal, checked.batch, checked.letters
    head = {
        "refusal": None if refusal is None else [int(refusal.error), refusal.message, refusal.records],
        "batch": None if batch is None else len(batch),
        "letters": [len(each) for each in letters],
        "counts": [checked.dead, checked.warned, checked.first],
    }
    return pack(head, batch or b"", *letters)


def read_response(head: bytes, body: bytes) -> Checked:
    told = json.loads(head)
    refusal, at, letters = None, told["batch"] or 0, []
    if told["refusal"] is not None:
        code, message, records = told["refusal"]
        refusal = Refusal(WireError(code), message, tuple((place, reason) for place, reason in records))
    for size in told["letters"]:
        letters.append(body[at : at + size])
        at += size
    batch = None if told["batch"] is None else body[: told["batch"]]
    return Checked(refusal, batch, tuple(letters), *told["counts"])
