"""The programs of the differential tests: each gives something, or the comparison with Spark would say nothing."""

import pytest

from support.streams.programs import PROGRAMS, random_batches, run


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_gives_something(program: str) -> None:
    given = [run(PROGRAMS[program], random_batches(seed)) for seed in range(5)]
    assert any(batch for result in given for batch in result)
