"""Several registries on one topic: who writes, what the others answer, and what a killed one leaves behind."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.conftest import StartRegistry
from support.brokers.processes import BrokerProcess
from support.services.registry import RegistryProcess, record

SHORT_SESSION = ("--session-timeout", "2")
FAIL_OVER_S = 60


def ids(registry: RegistryProcess) -> dict[str, int]:
    """The id of every subject's latest version."""
    return {each["subject"]: each["id"] for each in registry.ask("GET", "/schemas?latestOnly=true").body}


def test_100_concurrent_registrations_of_one_schema_give_one_id(start_registry: StartRegistry) -> None:
    nodes = [start_registry(*SHORT_SESSION), start_registry(*SHORT_SESSION)]
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(lambda n: nodes[n % 2].register(f"s{n}", record("Same", id="long")), range(100)))
    assert {each.status for each in found} == {200}
    assert len({each.body["id"] for each in found}) == 1
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(lambda n: nodes[n % 2].register("one", record("Same", id="long")), range(100)))
    assert {(each.body["id"], each.body["version"]) for each in found} == {(1, 1)}


def test_a_follower_forwards_writes_and_reads_them_at_once(start_registry: StartRegistry) -> None:
    writer = start_registry(*SHORT_SESSION)
    writer.register("first", record("First", id="long"))
    follower = start_registry(*SHORT_SESSION, "--ineligible")
    for number in range(20):
        written = follower.register(f"f{number}", record(f"F{number}", id="long"))
        assert written.status == 200, written
        read = follower.ask("GET", f"/schemas/ids/{written.body['id']}")
        assert json.loads(read.body["schema"])["name"] == f"F{number}"
        gone = follower.ask("DELETE", f"/subjects/f{number}")
        assert gone.body == [1]
        assert follower.ask("GET", f"/subjects/f{number}/versions").code == 40401
    assert follower.ask("PUT", "/config", {"compatibility": "FULL"}).body == {"compatibility": "FULL"}
    assert follower.ask("GET", "/config").body == {"compatibilityLevel": "FULL"}
    refused = follower.register("bad", "{")
    assert (refused.status, refused.code) == (422, 42201)


def test_without_an_eligible_registry_writes_are_refused_and_reads_answered(start_registry: StartRegistry) -> None:
    only = start_registry(*SHORT_SESSION, "--ineligible")
    assert only.ask("GET", "/subjects").body == []
    refused = only.register("s", record("R", id="long"))
    assert (refused.status, refused.code) == (500, 50004)


def test_restart_keeps_everything(start_registry: StartRegistry) -> None:
    registry = start_registry()
    first = registry.register("s", record("R", id="long"))
    registry.ask("PUT", "/config/s", {"compatibility": "NONE"})
    registry.ask("PUT", "/mode/other", {"mode": "READONLY"})
    registry.register("s", record("R", id="string"))
    registry.ask("DELETE", "/subjects/s/versions/1")
    before = [registry.ask("GET", path).body for path in EVERYTHING]
    registry.stop()
    registry.start()
    assert [registry.ask("GET", path).body for path in EVERYTHING] == before
    assert registry.register("another", record("R", id="long")).body["id"] == first.body["id"]


def test_it_survives_a_restart_of_the_broker(own_broker: BrokerProcess, tmp_path: Path) -> None:
    registry = RegistryProcess(tmp_path, own_broker.bootstrap, "own").start()
    try:
        assert registry.register("before", record("Before")).status == 200
        own_broker.restart()
        assert registry.ask("GET", "/subjects").body == ["before"], registry.log_text()
        assert registry.register("after", record("After")).status == 200
        assert registry.ask("GET", "/subjects").body == ["after", "before"]
    finally:
        registry.stop()


def test_a_session_that_the_broker_does_not_take_is_told(own_broker: BrokerProcess, tmp_path: Path) -> None:
    registry = RegistryProcess(tmp_path, own_broker.bootstrap, "own", "--session-timeout", "1").start()
    try:
        refused = registry.register("s", record("R"))
        assert refused.code == 50004
        assert "INVALID_SESSION_TIMEOUT" in refused.body["message"]
    finally:
        registry.stop()


EVERYTHING = ("/schemas?deleted=true", "/subjects?deleted=true", "/config/s", "/mode/other", "/contexts")


@contextmanager
def registering(*registries: RegistryProcess) -> Iterator[dict[str, int]]:
    """Register new schemas at all of them until the block ends; subjects whose registration was confirmed, with ids."""
    confirmed: dict[str, int] = {}
    over = threading.Event()

    def work(registry: RegistryProcess, name: str) -> None:
        number = 0
        while not over.is_set():
            number += 1
            subject = f"{name}-{number}"
            try:
                answer = registry.register(subject, record(f"R{name}{number}", id="long"))
            except (OSError, ValueError):
                time.sleep(0.05)  # it is dead
                continue
            if answer.status == 200:
                confirmed[subject] = answer.body["id"]

    threads = [
        threading.Thread(target=work, args=(registry, f"t{index}{copy}"))
        for index, registry in enumerate(registries)
        for copy in "ab"
    ]
    for thread in threads:
        thread.start()
    try:
        yield confirmed
    finally:
        over.set()
        for thread in threads:
            thread.join()


def await_more(confirmed: dict[str, int], count: int) -> None:
    wanted, deadline = len(confirmed) + count, time.monotonic() + FAIL_OVER_S
    while len(confirmed) < wanted:
        assert time.monotonic() < deadline, "registrations do not go on"
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_another_registry_writes_when_the_writer_ends(start_registry: StartRegistry, how: str) -> None:
    first, second = start_registry(*SHORT_SESSION), start_registry(*SHORT_SESSION)
    with registering(first, second) as confirmed:
        await_more(confirmed, 40)
        # Which of them writes is the group's choice: with each ended once, the writer was.
        for ended in (first, second):
            if how == "kill":
                ended.kill()
            else:
                ended.stop()
            await_more(confirmed, 40)
            ended.start()
            await_more(confirmed, 20)
    fresh = start_registry(*SHORT_SESSION, "--ineligible")
    for registry in (first, second, fresh):
        found = ids(registry)
        assert {subject: found.get(subject) for subject in confirmed} == confirmed
        assert len(set(found.values())) == len(found), "two schemas share an id"
