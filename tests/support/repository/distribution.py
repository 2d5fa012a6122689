"""Distribution of tests over processes: tests that share something expensive stay in one process.

All others are distributed one by one. xdist has the mark `xdist_group` for this, but this version of it stores the mark
where this version of pytest does not look.
"""

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

GROUPS: dict[str, tuple[str, ...]] = {
    "tests/clients": (
        "test_adoption",  # directories written by Apache Kafka
        "test_adoption_groups",
        "test_direct_security",  # an Apache Kafka process
        "test_streams",  # a compiled program
    ),
    "tests/cluster": ("test_administration", "test_controllers", "test_coordinators", "test_damage"),  # a cluster each
    "tests/unit/store": ("test_zookeeper",),  # an ensemble
}
ARCHITECTURE = "tests/architecture"  # the repository's files, parsed once
# One JVM for all tests with a session, and at most one more that runs Spark at the same time.
SPARK = "tests/spark"
WITH_SESSION = (
    "test_apache",
    "test_connector",
    "test_decode",
    "test_equality",
    "test_exactly_once",
    "test_guide",
    "test_session",
    "test_sink",
    "test_source_batch",
    "test_source_stream",
)
WITH_GO = ("test_go", "test_go_groups")  # a program that Go builds: two minutes at first
WITH_PROCESSES = ("test_cluster", "test_demo", "test_disturbed", "test_faults", "test_pipelines")
GROUP_OF = {
    **{f"{folder}/{name}.py": name for folder, names in GROUPS.items() for name in names},
    **{f"tests/clients/{name}.py": "with a Go program" for name in WITH_GO},
    **{f"{SPARK}/{name}.py": "with a Spark session" for name in WITH_SESSION},
    **{f"{SPARK}/{name}.py": "with Spark processes" for name in WITH_PROCESSES},
}


def group_of(test: str) -> str:
    """The group of a test by its node id; a test that shares nothing is its own group."""
    path = PurePosixPath(test.partition("::")[0])
    return ARCHITECTURE if path.is_relative_to(ARCHITECTURE) else GROUP_OF.get(str(path), test)


class GroupScheduling(LoadScopeScheduling):
    """Distributes groups to processes, the largest first."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
