"""Distribution of tests over processes: files that are named to stay together exist, and do."""

from pathlib import Path

import pytest

from support.repository.distribution import GROUP_OF, group_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("file", GROUP_OF)
def test_files_are_there(file: str) -> None:
    assert (ROOT / file).is_file()
    assert group_of(f"{file}::test_one[a::b]") == group_of(f"{file}::TestClass::test_two") == GROUP_OF[file]


def test_all_with_a_session_are_named() -> None:
    folder = ROOT / "tests" / "spark"
    using = [path for path in folder.glob("test_*.py") if "spark: Any" in path.read_text()]
    groups = {group_of(f"{path.relative_to(ROOT).as_posix()}::test") for path in using}
    assert len(groups) == 1, "another process would start a session of its own"


def test_all_that_parse_the_repository_are_together() -> None:
    here = f"{Path(__file__).relative_to(ROOT).as_posix()}::test"
    assert group_of(here) == group_of("tests/architecture/test_style.py::test_one")


def test_others_are_distributed_one_by_one() -> None:
    test = "tests/unit/log/test_log.py::test_one"
    assert group_of(test) == test
