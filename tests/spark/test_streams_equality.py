"""Programs of Streams: the interpreter and Spark, fed the same batches, give the same results batch by batch."""

import os
from datetime import timedelta
from typing import Any

import pytest

from moldau.streams import Streams, seconds, string
from support.streams.join_tables import LEFT, STREAM_STREAM, STREAM_TABLE, TABLE_TABLE, Step
from support.streams.programs import BEGIN, PROGRAMS, random_batches, run

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

FULL = bool(os.environ.get("MOLDAU_FULL"))
SEEDS = range(20) if FULL else range(1)
SHORT = ("expressions", "tumbling", "sessions", "lookup", "streams_outer")
CHOSEN = tuple(PROGRAMS) if FULL else SHORT


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("program", CHOSEN)
def test_spark_does_what_the_interpreter_does(spark: Any, program: str, seed: int) -> None:
    batches = random_batches(seed)
    build = PROGRAMS[program]
    assert run(build, batches, engine="spark", spark=spark) == run(build, batches)


def results(spark: Any, app: Streams, steps: tuple[Step, ...]) -> list[tuple[object, ...]]:
    test = app.test(engine="spark", spark=spark)
    try:
        given = []
        for step in steps:
            test.send(step.side, "k", step.value, timestamp=BEGIN + timedelta(seconds=step.second))
            values = [result.value for result in test.read("joined")]
            given.append(
                tuple(sorted("deleted" if each is None else str((each["left"], each["right"])) for each in values))
            )
        return given
    finally:
        test.close()


@pytest.mark.skipif(not FULL, reason="takes a minute: set MOLDAU_FULL=1")
@pytest.mark.parametrize("how", ["inner", "left", "outer"])
@pytest.mark.parametrize("sides", ["streams", "lookup", "tables"])
def test_the_join_tables_of_the_documentation(spark: Any, how: str, sides: str) -> None:
    if (sides, how) == ("lookup", "outer"):
        return
    app = Streams("joins")
    kinds = {"streams": (app.stream, app.stream), "lookup": (app.stream, app.table), "tables": (app.table, app.table)}
    left, right = (make(side, value=string) for make, side in zip(kinds[sides], (LEFT, "right"), strict=True))
    more = {"within": seconds(15), "grace": seconds(5)} if sides == "streams" else {}
    getattr(left, {"inner": "join", "left": "left_join", "outer": "outer_join"}[how])(right, **more).to("joined")
    steps = {"streams": STREAM_STREAM, "lookup": STREAM_TABLE, "tables": TABLE_TABLE}[sides]
    expected = [
        tuple(sorted("deleted" if each == "deleted" else str(each) for each in getattr(step, how))) for step in steps
    ]
    assert results(spark, app, steps) == expected
