"""One run: a cluster, clients, faults by seed, a final read of everything, and the checker's result."""

import contextlib
import logging
import math
import random
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import jars
from chaos.access import Access
from chaos.apache import ApacheCluster
from chaos.checker import Anomaly, check
from chaos.effects import Witness
from chaos.faults import ENSEMBLE, FAULTS, Scene, await_in_sync
from chaos.history import (
    Acked,
    Committed,
    Disturbed,
    Erred,
    Event,
    Failed,
    Noted,
    Polled,
    Recorder,
    Send,
    Settled,
    Struck,
)
from chaos.security import ADMIN, CLIENTS, Secured, admit_brokers, admit_clients
from chaos.stamps import stamp
from chaos.workloads.base import Gave, Workload, wait_until
from chaos.workloads.read import LAST, read_everything
from chaos.workloads.table import Cast, cast_of, client_of

Say = Callable[[str], None]
TOPIC_SETTINGS = {"min.insync.replicas": "2"}
REPLICAS = 3
CREATE_S = 60.0
SHOWN = 10  # anomalies printed for a run; the history has all of them
FAULTS_TELL, BEGIN = "faults", "begin "  # how a history names faults
MORE = 20  # progress of every client between two faults
SETTINGS: dict[str, Any] = {  # of the brokers, in addition to those of all tests
    "zookeeper_session_timeout_ms": 4000,  # sessions must not expire just because the machine is busy
    "min_insync_replicas": 2,
    "transaction_state_log_min_isr": 2,
    "replica_lag_time_max_ms": 3000,
    "group_min_session_timeout_ms": 500,
    "unclean_leader_election_enable": False,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that determines a run, apart from timing."""

    seed: int
    faults: list[str]  # to choose from at random
    workloads: list[str]
    rounds: int = 3
    rate: float = 100.0
    system: str = "moldau"
    security: bool = False

    @property
    def command(self) -> str:
        parts = [f"run --seed {self.seed}", f"--rounds {self.rounds}", f"--rate {self.rate:g}"]
        parts += [f"--fault {name}" for name in self.faults]
        parts += [f"--workload {name}" for name in self.workloads]
        if self.system != "moldau":
            parts.append(f"--system {self.system}")
        if self.security:
            parts.append("--security")
        return f'make chaos ARGS="{" ".join(parts)}"'


@dataclass(slots=True)
class Outcome:
    plan: Plan
    done: list[str] = field(default_factory=list)  # faults
    by_fault: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # "": before the first
    by_client: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    silence_s: dict[str, float] = field(default_factory=dict)  # fault → the longest time without an acknowledgement
    seconds: float = 0.0
    anomalies: list[Anomaly] = field(default_factory=list)
    trouble: str = ""  # why it did not finish
    history: Path | None = None

    @property
    def good(self) -> bool:
        return not self.anomalies and not self.trouble

    @property
    def all(self) -> Counter[str]:
        return sum(self.by_fault.values(), Counter())

    @property
    def summary(self) -> str:
        """The result in one line."""
        return (
            f"seed {self.plan.seed}, {' '.join(self.done) or 'no fault'}: "
            f"{self.all['sent']:,} sent, {self.all['acked']:,} acknowledged, {self.all['read']:,} read, "
            f"{self.all['committed']:,} offsets committed, {len(self.anomalies)} anomalies, "
            f"{self.seconds:.0f} s{', ' + self.trouble if self.trouble else ''}"
        )

    @property
    def complaint(self) -> str:
        """The anomalies, and the command that repeats the run."""
        lines = [f"seed {self.plan.seed}: {self.trouble or f'{len(self.anomalies)} anomalies'}"]
        lines += [f"  {each}" for each in self.anomalies[:SHOWN]]
        lines += [f"  again: {self.plan.command}", f"  history: {self.history}; brokers' logs are beside it"]
        return "\n".join(lines)


def run(plan: Plan, directory: Path, say: Say) -> Outcome:
    """Run a plan. If it finds anything, the history and the brokers' directories are kept."""
    directory.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(plan, history=directory / "history.jsonl")
    recorder = Recorder(outcome.history)
    _log_clients(directory / "clients.log")
    began = time.monotonic()
    home = directory / "cluster"
    try:
        secured = Secured(home, range(1, REPLICAS + 1)) if plan.security else None
        with _cluster(plan.system, home, secured) as cluster:
            _disturb(plan, cluster, secured, recorder, outcome, say)
    except (Gave, TimeoutError) as failure:
        outcome.trouble = str(failure)
    except Exception as failure:  # noqa: BLE001 - any failure is a result of the run, beside the history so far
        outcome.trouble = repr(failure)
    finally:
        recorder.close()
    outcome.anomalies = check(recorder.events, ended=not outcome.trouble)
    count(recorder.events, outcome)
    outcome.seconds = time.monotonic() - began
    if outcome.good:
        shutil.rmtree(home, ignore_errors=True)
    return outcome


def _log_clients(path: Path) -> None:
    """Write the clients' logs to a file: without brokers they log a lot."""
    for name in ("aiokafka", "kafka", "librdkafka"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [logging.FileHandler(path)], False


def _disturb(plan: Plan, cluster: Any, secured: Secured | None, recorder: Recorder, outcome: Outcome, say: Say) -> None:
    bootstrap = cluster.bootstrap_servers
    admin = Access(bootstrap, secured.login(ADMIN) if secured else None)
    clients = Access(bootstrap, secured.login(CLIENTS) if secured else None)
    cast = cast_of(plan.workloads, clients, recorder, plan.seed, plan.rate)
    if secured is not None:
        admit_brokers(admin)
    _create(admin, cast.topics)
    if secured is not None:
        admit_clients(admin, clients, cast)
    scene = Scene(
        cluster,
        random.Random(plan.seed),
        cast.topics,
        cast.coordinated,
        lambda text: recorder.tell(Noted, FAULTS_TELL, text),
        Witness(cluster, cast.topics, cluster.broker_ids),
        admin,
    )
    await_in_sync(scene)
    try:
        _under_load(plan, cast, scene, outcome, say)
    except BaseException:
        for each in cast.clients:
            each.abandon()
        raise
    read_everything(clients, recorder, cast.topics)
    stamp(clients, recorder, LAST)


def _under_load(plan: Plan, cast: Cast, scene: Scene, outcome: Outcome, say: Say) -> None:
    recorder = cast.recorder
    for each in cast.clients:
        each.start()
    _await_more(cast, "before any fault")
    for number, name in enumerate(_order(plan, scene.dice), start=1):
        say(f"seed {plan.seed}, {number} of {plan.rounds}: {name}")
        recorder.tell(Noted, FAULTS_TELL, BEGIN + name)
        recorder.tell(Disturbed, FAULTS_TELL)
        scene.first = name not in outcome.done
        _strike(name, scene, recorder)
        recorder.tell(Noted, FAULTS_TELL, f"end {name}")
        outcome.done.append(name)
        _await_more(cast, f"after {name}")
        await_in_sync(scene)
        recorder.tell(Settled, FAULTS_TELL)
    say(f"seed {plan.seed}: reading everything")
    cast.end()


def _strike(name: str, scene: Scene, recorder: Recorder) -> None:
    """Cause one fault, and record its effect."""
    scene.witness = Witness(scene.cluster, scene.topics, scene.nodes.broker_ids)
    try:
        FAULTS[name](scene)
    except TimeoutError as failure:
        raise TimeoutError(f"{name}: {failure}") from failure
    scene.witness.look()
    seen = scene.witness
    recorder.tell(Struck, FAULTS_TELL, name, len(seen.moved), len(seen.behind), seen.silent)


def _order(plan: Plan, dice: random.Random) -> list[str]:
    """Every fault once before any is repeated."""
    order: list[str] = []
    while len(order) < plan.rounds:
        order += dice.sample(plan.faults, len(plan.faults))
    return order[: plan.rounds]


def _await_more(cast: Cast, when: str) -> None:
    """Wait until every client makes progress; one that does not was stopped for good by the fault."""
    wanted = [(each, each.acked + MORE) for each in cast.clients]
    for each, least in wanted:
        wait_until(partial(_got_on, each, least), f"{each.name} {when}")
        if each.broken is not None:
            raise Gave(f"{each.name} broke {when}: {each.broken!r}")


def _got_on(each: Workload, least: int) -> bool:
    return each.acked >= least or each.broken is not None


def _create(access: Access, topics: dict[str, int]) -> None:
    admin = AdminClient({**access.librdkafka, "log_level": 0})
    wanted = [
        NewTopic(name, num_partitions=partitions, replication_factor=REPLICAS, config=TOPIC_SETTINGS)
        for name, partitions in topics.items()
    ]
    for created in admin.create_topics(wanted, operation_timeout=CREATE_S, request_timeout=CREATE_S).values():
        created.result(CREATE_S)


@contextlib.contextmanager
def _cluster(system: str, home: Path, secured: Secured | None) -> Iterator[Any]:
    if system == "apache":
        found = jars.obtain()
        if isinstance(found, str):
            raise Gave(f"no Apache Kafka: {found}")
        with ApacheCluster(found, home) as apache:
            yield apache
    else:
        from moldau.testing.cluster import Cluster

        home.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {**SETTINGS, **(secured.settings if secured else {})}
        own = Access("", secured.login(ADMIN) if secured else None).direct
        with Cluster(REPLICAS, zookeeper_nodes=ENSEMBLE, directory=home, security=own, **settings) as cluster:
            yield cluster


def count(events: list[Event], outcome: Outcome) -> None:
    """Count events in total, per fault (from its start to the start of the next), and per client."""
    window, acked_at = "", math.inf
    for event in events:
        if isinstance(event, Noted) and event.client == FAULTS_TELL and event.text.startswith(BEGIN):
            window = event.text.removeprefix(BEGIN)
        counted = _counted(event)
        outcome.by_fault[window].update(counted)
        if event.client == FAULTS_TELL:
            continue
        client = client_of(event.client)
        outcome.by_client[client].update(counted)
        if isinstance(event, Acked):
            outcome.by_fault[window][client] += 1
            outcome.silence_s[window] = max(outcome.silence_s.get(window, 0.0), event.at - acked_at)
            acked_at = event.at


def _counted(event: Event) -> Counter[str]:
    match event:
        case Send():
            return Counter(sent=1)
        case Acked():
            return Counter(acked=1)
        case Polled():
            return Counter(read=len(event.reads))
        case Committed():
            return Counter(committed=1)
        case Failed() | Erred():
            refused = isinstance(event, Failed) and event.surely
            return Counter(refused=int(refused), **{"hard" if event.hard else "errors": 1})
        case Struck():
            return Counter(times=1, moved=event.moved, behind=event.behind)
    return Counter()
