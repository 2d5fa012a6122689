"""Programs with random records, in the interpreter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.streams import Streams
from support.streams.programs import PROGRAMS, Batches, Build, Sent, play, random_batches, run


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_gives_something(program: str) -> None:
    """Or a comparison of what programs give would say nothing."""
    results = [run(PROGRAMS[program], random_batches(seed)) for seed in range(5)]
    assert any(batch for result in results for batch in result)


@given(seed=st.integers(0, 10_000), cuts=st.lists(st.integers(1, 4), max_size=20))
@pytest.mark.parametrize("program", ["sums", "reduce", "cogrouped", "tables", "tables_left", "grouped_table"])
def test_the_newest_rows_do_not_depend_on_where_batches_end(program: str, seed: int, cuts: list[int]) -> None:
    sent = sorted((each for batch in random_batches(seed) for each in batch), key=lambda each: each.second)
    tables = [table(PROGRAMS[program], batches) for batches in ([[each] for each in sent], cut(sent, cuts), [sent])]
    assert tables[0] == tables[1] == tables[2]


def cut(sent: list[Sent], sizes: list[int]) -> Batches:
    batches: Batches = []
    for size in sizes:
        batches.append(sent[:size])
        sent = sent[size:]
    return [*batches, sent]


def table(build: Build, batches: Batches) -> dict[str, str]:
    """The newest row of each key, after all batches."""
    app = Streams("program")
    build(app)
    test = app.test()
    play(test, app, batches)
    return test.table("out")
