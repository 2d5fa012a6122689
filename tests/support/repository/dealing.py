"""Which tests stay in one process of a run in several: those that share something that takes long to make.

All others are dealt out one by one. xdist has a mark for this (`xdist_group`), but this version of it writes the mark
where this version of pytest does not look: each process would make its own.
"""

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

GROUPS: dict[str, tuple[str, ...]] = {
    "tests/clients": (
        "test_adoption",  # what Apache Kafka left
        "test_adoption_groups",
        "test_direct_security",  # an Apache Kafka
        "test_streams",  # a compiled program
    ),
    "tests/cluster": ("test_administration", "test_controllers", "test_coordinators", "test_damage"),  # a cluster each
    "tests/unit/store": ("test_zookeeper",),  # an ensemble
}
# One JVM for a session of all of them, and no more than one other that is busy with Spark beside it.
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
WITH_PROCESSES = ("test_cluster", "test_demo", "test_disturbed", "test_faults", "test_pipelines")
GROUP_OF = {
    **{f"{folder}/{name}.py": name for folder, names in GROUPS.items() for name in names},
    **{f"{SPARK}/{name}.py": "with a session of Spark" for name in WITH_SESSION},
    **{f"{SPARK}/{name}.py": "with processes of Spark" for name in WITH_PROCESSES},
}


def group_of(test: str) -> str:
    """By what pytest calls the test; a test that shares nothing is a group of its own."""
    return GROUP_OF.get(str(PurePosixPath(test.partition("::")[0])), test)


class Dealer(LoadScopeScheduling):
    """Deals out groups, the largest first."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
