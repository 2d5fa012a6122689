"""Distribution of tests over processes: tests that share something expensive stay in one process.

All others are distributed one by one. xdist has the mark `xdist_group` for this, but this version of it stores the mark
where this version of pytest does not look.
"""

from functools import cache
from pathlib import Path, PurePosixPath

from xdist.scheduler import LoadScopeScheduling

REPOSITORY = Path(__file__).parents[3]

ARCHITECTURE = "tests/architecture"  # the repository's files, parsed once
# One JVM for all tests with a session, and at most one more that runs Spark at the same time.
SPARK = "tests/spark"
WITH_SESSION = (
    "test_apache",
    "test_connect",
    "test_connector",
    "test_dead_letters",
    "test_decode",
    "test_equality",
    "test_exactly_once",
    "test_guide",
    "test_pipelines_guide",
    "test_registry",
    "test_secured",
    "test_session",
    "test_sink",
    "test_source_batch",
    "test_source_stream",
    "test_streams_equality",
    "test_streams_run",
)
WITH_DATABASES = ("tests/unit/client/offset_store/test_stores.py", "tests/clients/test_client_transactions.py")
WITH_GO = ("test_go", "test_go_groups")  # a program that Go builds: two minutes at first
WITH_PROCESSES = (
    "test_cluster",
    "test_demo",
    "test_disturbed",
    "test_faults",
    "test_notebook",
    "test_pipeline_status",
    "test_pipelines",
)
GROUP_OF = {
    "tests/clients/test_streams.py": "test_streams",  # a compiled program
    **dict.fromkeys(WITH_DATABASES, "with databases"),
    **{f"tests/clients/{name}.py": "with a Go program" for name in WITH_GO},
    **{f"{SPARK}/{name}.py": "with a Spark session" for name in WITH_SESSION},
    **{f"{SPARK}/{name}.py": "with Spark processes" for name in WITH_PROCESSES},
}


def group_of(test: str) -> str:
    """The group of a test by its node id; a test that shares nothing is its own group."""
    path = PurePosixPath(test.partition("::")[0])
    if path.is_relative_to(ARCHITECTURE):
        return ARCHITECTURE
    return GROUP_OF.get(str(path)) or (str(path) if _shares(str(path)) else test)


@cache
def _shares(path: str) -> bool:
    """Whether the tests of a file share a fixture, which every change of file would end and start again."""
    file = REPOSITORY / path
    return file.is_file() and 'scope="module"' in file.read_text(encoding="utf-8")


class GroupScheduling(LoadScopeScheduling):
    """Distributes groups to processes, the largest first."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
