"""SimulatedCluster: brokers of one partition on a virtual clock and an in-memory network, by seed.

The ISR arithmetic (`replication.isr`), the controller's decisions (`metadata.elections`, `metadata.alter_partition`)
and images (`metadata.changes`) are real. Logs are lists; messages wait in queues for a random time. Brokers are killed,
paused, cut off and falsely declared dead, and one at a time loses its unsynced records. The responses to clients are a
history for `chaos.checker`. The same seed gives the same run.
"""

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from chaos.history import Acked, Event, Failed, Placed, Polled, Recorder, Send
from moldau.base.errors import Refusal
from moldau.metadata.alter_partition import ProposedIsr, alter_partition
from moldau.metadata.changes import BrokerLeaving, BrokerRegistered, Change, ChangeSet, TopicCreated, apply, fold
from moldau.metadata.elections import (
    ElectionRules,
    broker_failure_changes,
    controlled_shutdown_changes,
    leader_and_isr_changes,
    preferred_election,
    unclean_shutdown_changes,
)
from moldau.metadata.image import Broker, ClusterImage, PartitionState
from moldau.metadata.reassignment import cancel, reassign
from moldau.replication.isr import Isr, PendingIsr
from moldau.replication.isr_changes import REFUSED

TOPIC, PLACE, TOPIC_ID = "topic", "topic/0", UUID(int=7)
MIN_ISR = 2
REPLICAS = 3
LAG_MS = 1_000
ROUNDS_OF_REST = 60
RULES = ElectionRules(min_isr=lambda _: MIN_ISR, unclean=lambda _: False)
STEP_MS = 60  # at most, from one action to the next

Entry = tuple[int, str]  # leader epoch and value


@dataclass(slots=True)
class Fetch:
    sender: int
    broker_epoch: int
    leader_epoch: int
    offset: int
    last_epoch: int  # of the record before that offset; -1: there is none


@dataclass(slots=True)
class Records:
    leader_epoch: int
    offset: int
    entries: list[Entry]
    high_watermark: int
    diverging: tuple[int, int] | None = None  # epoch and its end


@dataclass(slots=True)
class Waiting:
    """A batch that is acknowledged when it is committed."""

    end: int
    value: str


@dataclass
class Node:
    """A broker. Its log survives a kill; the records before `synced` survive a power cut too."""

    id: int
    log: list[Entry] = field(default_factory=list)
    synced: int = 0
    high_watermark: int = 0
    version: int = 0  # of its image
    epoch: int = -1  # of its registration
    leader_epoch: int = -1
    isr: Isr | None = None  # while it leads
    waiting: list[Waiting] = field(default_factory=list)
    alive: bool = True
    paused: bool = False
    unclean: bool = False  # it has lost records, and says so when it registers
    asked: PendingIsr | None = None  # the last proposal
    unsure: bool = False  # the proposal was sent before and may be granted already
    fetching: bool = False  # it has a fetch in flight

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one that the log has, and where it ends; -1 if it has none."""
        known = max((each for each, _ in self.log if each <= epoch), default=-1)
        return known, sum(1 for each, _ in self.log if each <= known)


class SimulatedCluster:
    def __init__(self, seed: int, brokers: int = 4) -> None:
        self.dice = Random(seed)
        self.now = 0
        self.recorder = Recorder(clock=lambda: self.now / 1000)
        self.images: list[ClusterImage] = [ClusterImage()]
        self.nodes = {number: Node(number) for number in range(1, brokers + 1)}
        self.requests: list[tuple[int, Fetch]] = []  # with the leader
        self.answers: list[tuple[int, Records]] = []
        self.proposals: list[
            tuple[int, int, int, PendingIsr, dict[int, int]]
        ] = []  # broker, broker epoch, leader epoch, proposal, members with their broker epochs
        self.cut_off: set[int] = set()
        self._number = 0
        self._position = 0
        for node in self.nodes.values():
            self._register(node)
        ids = tuple(self.nodes)[:REPLICAS]
        self._commit(TopicCreated(TOPIC, TOPIC_ID, (PartitionState(0, ids, ids, ids[0]),), {}))
        for node in self.nodes.values():
            while node.version < self.image.version:
                self.follow_feed(node)
        self.recorder.tell(Placed, "reader", PLACE, 0)

    @property
    def history(self) -> list[Event]:
        return self.recorder.events

    @property
    def image(self) -> ClusterImage:
        return self.images[-1]

    @property
    def state(self) -> PartitionState:
        return self.image.topics[TOPIC].partitions[0]

    # ── actions ──

    def run(self, steps: int) -> None:
        """Take random actions."""
        for _ in range(steps):
            self.now += self.dice.randrange(STEP_MS)
            self.dice.choices(ACTIONS, WEIGHTS)[0](self)

    def come_to_rest(self) -> None:
        """Run all brokers without faults until nothing changes; then read all records."""
        self.rest(list(self.nodes.values()))
        self.recorder.tell(Placed, "last", PLACE, 0)
        leader = self.nodes.get(self.state.leader)
        if leader is not None:
            self._poll("last", leader, 0)

    def lose(self, node: Node) -> None:
        """Remove a broker for good: its session expires, and it never restarts."""
        node.alive, node.paused, node.fetching = False, False, False
        self._step_down(node)
        self.believe_dead(node)

    def rest(self, nodes: list[Node]) -> None:
        """Run these brokers without faults until nothing changes."""
        self.cut_off.clear()
        for _ in range(ROUNDS_OF_REST):
            for node in nodes:
                node.paused = False
                known = self.image.brokers.get(node.id)
                if known is not None and known.leaving:  # it stops, and restarts
                    node.alive = False
                    self._step_down(node)
                if not node.alive:
                    self.start(node)
                while node.version < self.image.version:
                    self.follow_feed(node)
                self.fetch(node)
            self.now += STEP_MS
            while self.requests or self.answers or self.proposals:
                self.deliver_request()
                self.deliver_answer()
                self.decide_proposal()
            for node in nodes:
                self.watch_isr(node)

    def produce(self) -> None:
        """Produce to a broker that considers itself the leader; a deposed leader does for a while."""
        leaders = [node for node in self.nodes.values() if self._acts(node) and node.isr is not None]
        if not leaders:
            return
        node = self.dice.choice(leaders)
        assert node.isr is not None
        value = f"producer.{self._number}"
        self._number += 1
        self.recorder.tell(Send, "producer", PLACE, value)
        if not node.isr.committed_isr_is_enough(MIN_ISR):
            self.recorder.tell(Failed, "producer", PLACE, value, "too few replicas", True)
            return
        node.log.append((node.leader_epoch, value))
        node.waiting.append(Waiting(len(node.log), value))
        self._advance(node)

    def poll(self) -> None:
        leaders = [node for node in self.nodes.values() if self._acts(node) and node.isr is not None]
        if leaders:
            self._position = max(self._position, self._poll("reader", self.dice.choice(leaders), self._position))

    def _poll(self, consumer: str, node: Node, position: int) -> int:
        """Read the committed records of a leader."""
        assert node.isr is not None
        found = [(at, node.log[at][1]) for at in range(position, node.isr.high_watermark)]
        self.recorder.tell(Polled, consumer, PLACE, tuple(found))
        return max(position, node.isr.high_watermark)

    def fetch_somebody(self) -> None:
        self.fetch(self._somebody())

    def fetch(self, node: Node) -> None:
        if not self._acts(node) or node.isr is not None or node.fetching:
            return
        state = self._known(node)
        if state.leader in self.nodes and state.leader != node.id and node.id in state.replicas:
            last = node.log[-1][0] if node.log else -1
            node.fetching = True
            self.requests.append((state.leader, Fetch(node.id, node.epoch, node.leader_epoch, len(node.log), last)))

    def deliver_request(self) -> None:
        if not self.requests:
            return
        target, asked = self.requests.pop(0 if self.dice.random() < 0.8 else self.dice.randrange(len(self.requests)))
        node = self.nodes[target]
        if not self._hear_each_other(asked.sender, target):
            self.nodes[asked.sender].fetching = False  # the connection breaks
        elif node.paused:
            self.requests.append((target, asked))  # it waits in a socket
        else:
            answer = self._serve(node, asked)
            if answer is None:
                self.nodes[asked.sender].fetching = False
            else:
                self.answers.append((asked.sender, answer))

    def _serve(self, node: Node, asked: Fetch) -> Records | None:
        """Serve a fetch as a leader does: epochs and logs agree up to the offset, so the follower has all before it."""
        if node.isr is None or asked.leader_epoch != node.leader_epoch or asked.sender not in node.isr.followers:
            return None
        if asked.broker_epoch < (self._epoch_of(node, asked.sender) or -1):
            return None
        epoch, end = node.end_of_epoch(asked.last_epoch)
        if asked.offset > 0 and (epoch != asked.last_epoch or end < asked.offset):
            return Records(node.leader_epoch, asked.offset, [], node.isr.high_watermark, (epoch, end))
        known = node.isr.followers[asked.sender]
        known.fetched(asked.offset, 0, asked.broker_epoch, len(node.log), self.now)
        if asked.sender not in node.isr.committed_isr and node.isr.may_join(
            asked.sender, lambda broker: self._epoch_of(node, broker)
        ):
            self._ask(node, node.isr.propose({*node.isr.committed_isr, asked.sender}))
        self._advance(node)
        many = self.dice.randrange(1, 6)
        return Records(
            node.leader_epoch, asked.offset, node.log[asked.offset : asked.offset + many], node.isr.high_watermark
        )

    def deliver_answer(self) -> None:
        if not self.answers:
            return
        target, told = self.answers.pop(0)
        node = self.nodes[target]
        if node.paused:
            self.answers.append((target, told))
            return
        node.fetching = False
        if not node.alive or node.isr is not None or told.leader_epoch != node.leader_epoch:
            return
        if told.diverging is not None:
            epoch, end = told.diverging
            known, known_end = node.end_of_epoch(epoch)
            keep = min(known_end, end) if known == epoch or known < 0 else known_end
            del node.log[max(keep, 0) :]
        elif told.offset == len(node.log):
            node.log += told.entries
            node.high_watermark = max(node.high_watermark, min(told.high_watermark, len(node.log)))
        node.high_watermark = min(node.high_watermark, len(node.log))
        node.synced = min(node.synced, len(node.log))

    def decide_proposal(self) -> None:
        """Decide a proposal at the controller. The response may be lost; the change feed has the outcome."""
        if not self.proposals:
            return
        broker, broker_epoch, leader_epoch, pending, members = self.proposals.pop(0)
        node = self.nodes[broker]
        if broker in self.cut_off or (self.dice.random() < 0.1 and self.cut_off):
            return
        asked = ProposedIsr(TOPIC_ID, 0, leader_epoch, pending.partition_epoch, members)
        decision = alter_partition(self.image, broker, broker_epoch, asked, RULES)
        if not isinstance(decision, Refusal):
            self._commit(decision)
            return
        certain = decision.error in REFUSED and not node.unsure
        if certain and self._acts(node) and node.isr is not None and node.isr.pending is pending:
            node.isr.drop_pending()

    def follow_somebody(self) -> None:
        self.follow_feed(self._somebody())

    def follow_feed(self, node: Node) -> None:
        """Apply the next change of the feed."""
        if not self._acts(node) or node.id in self.cut_off or node.version == self.image.version:
            return None
        node.version += 1
        image = self._image_of(node)
        mine = image.brokers.get(node.id)
        if node.version == self.image.version and mine is None:
            return self._register(node)
        if mine is not None:
            node.epoch = max(node.epoch, mine.epoch)
        if TOPIC in image.topics:
            self._take(node, image.topics[TOPIC].partitions[0])
        if node.isr is not None:
            if node.isr.proposal_cannot_succeed(lambda broker: self._epoch_of(node, broker)):
                node.isr.drop_pending()
            self._advance(node)
        return None

    def _take(self, node: Node, state: PartitionState) -> None:
        """Apply the partition's state of the image."""
        if node.id not in state.replicas:
            self._step_down(node)
            node.log.clear()
            node.synced = node.high_watermark = 0
            node.leader_epoch, node.fetching = max(node.leader_epoch, state.leader_epoch), False
            return
        if state.leader == node.id and state.leader_epoch > node.leader_epoch:
            watermark = node.isr.high_watermark if node.isr is not None else node.high_watermark
            node.isr = Isr(
                node.id, state.replicas, state.isr, state.partition_epoch,
                epoch_start=len(node.log), high_watermark=watermark, now=self.now,
            )  # fmt: skip
            node.leader_epoch = state.leader_epoch
            self._advance(node)
        elif state.leader == node.id and node.isr is not None:
            if node.isr.adopt(state.replicas, state.isr, state.partition_epoch, self.now):
                self._advance(node)
        elif state.leader != node.id and state.leader_epoch > node.leader_epoch:
            self._step_down(node)
            node.leader_epoch = state.leader_epoch
            node.fetching = False

    def watch_somebody(self) -> None:
        self.watch_isr(self._somebody())

    def watch_isr(self, node: Node) -> None:
        """As leader, send the pending proposal again, or propose to remove replicas that lag."""
        if not self._acts(node) or node.isr is None:
            return None
        if node.isr.pending is not None:
            return self._ask(node, node.isr.pending)
        laggards = node.isr.lagging(len(node.log), self.now, LAG_MS)
        if laggards:
            self._ask(node, node.isr.propose(node.isr.committed_isr.difference(laggards)))
        return None

    # ── faults and administration ──

    def kill(self) -> None:
        """Kill a process; its log stays. Sometimes its machine loses power too."""
        node = self._somebody()
        others = [each for each in self.nodes.values() if each is not node]
        if not node.alive:
            return
        node.alive, node.paused, node.fetching = False, False, False
        self._step_down(node)
        if self.dice.random() < 0.2 and not any(each.unclean for each in others) and self._safe_without(node):
            del node.log[node.synced :]
            node.high_watermark = min(node.high_watermark, node.synced)
            node.unclean = True
        if self.dice.random() < 0.7:
            self.believe_dead(node)

    def _safe_without(self, node: Node) -> bool:
        """Whether another replica, in the ISR or ELR, has all committed records."""
        return bool({*self.state.isr, *self.state.elr} - {node.id}) and len(self.state.isr) >= MIN_ISR

    def start_somebody(self) -> None:
        self.start(self._somebody())

    def start(self, node: Node) -> None:
        if not node.alive:
            node.alive, node.version = True, self.image.version  # it reads all metadata
            node.leader_epoch = -1
            self._register(node)
            self._take(node, self.state)

    def pause(self) -> None:
        node = self._somebody()
        node.paused = node.alive

    def resume(self) -> None:
        self._somebody().paused = False

    def isolate(self) -> None:
        self.cut_off.add(self._somebody().id)

    def heal(self) -> None:
        self.cut_off.clear()

    def believe_dead_somebody(self) -> None:
        self.believe_dead(self._somebody())

    def believe_dead(self, node: Node) -> None:
        """Expire the session of a broker, dead or only slow."""
        if node.id in self.image.brokers and len(self.image.brokers) > 1:
            self._commit(ChangeSet(broker_failure_changes(self.image, [node.id], RULES, expired=True)))

    def leave(self) -> None:
        """Begin a controlled shutdown; the broker stays registered until it is killed or its session expires."""
        node = self._somebody()
        if self._acts(node) and node.id in self.image.brokers and node.id not in self.cut_off:
            told = BrokerLeaving(node.id)
            self._commit(ChangeSet((told, *controlled_shutdown_changes(fold(self.image, told), node.id, RULES))))

    def elect(self) -> None:
        self._try(preferred_election(self.image, TOPIC, 0))

    def reassign(self) -> None:
        """Begin a reassignment, or cancel one."""
        target = self.dice.sample(sorted(self.nodes), REPLICAS)
        self._try(reassign(self.image, TOPIC, 0, target) if self.dice.random() < 0.8 else cancel(self.image, TOPIC, 0))

    def _try(self, decision: Change | Refusal) -> None:
        if not isinstance(decision, Refusal):
            self._commit(decision)

    def sync(self) -> None:
        node = self._somebody()
        node.synced = len(node.log)

    # ── helpers ──

    def _register(self, node: Node) -> None:
        """Register a broker, with the changes of partitions that the controller decides."""
        known = self.image.brokers.get(node.id)
        changes: list[Change] = [BrokerRegistered(Broker(node.id, {}))]
        after = fold(self.image, changes[0])
        if TOPIC in after.topics:
            if node.unclean:
                for change in unclean_shutdown_changes(after, node.id, RULES):
                    changes.append(change)
                    after = fold(after, change)
            changes += leader_and_isr_changes(after, RULES, {node.id} if known is not None else ())
        node.unclean = False
        self._commit(ChangeSet(tuple(changes)))
        node.epoch = self.image.brokers[node.id].epoch

    def _commit(self, change: Change) -> None:
        if not isinstance(change, ChangeSet) or change.changes:
            self.images.append(apply(self.image, change))

    def _image_of(self, node: Node) -> ClusterImage:
        return self.images[node.version]

    def _known(self, node: Node) -> PartitionState:
        return self._image_of(node).topics[TOPIC].partitions[0]

    def _epoch_of(self, node: Node, broker: int) -> int | None:
        found = self._image_of(node).brokers.get(broker)
        return None if found is None or found.leaving else found.epoch

    def _ask(self, node: Node, pending: PendingIsr) -> None:
        """Send a proposal. One that was sent before may have been granted then, so its refusal proves nothing."""
        assert node.isr is not None
        node.unsure, node.asked = node.asked is pending, pending
        joining = dict(pending.joining)
        members = {
            each: node.epoch if each == node.id else joining.get(each, node.isr.followers[each].broker_epoch)
            for each in pending.isr
            if each == node.id or each in node.isr.followers
        }
        self.proposals.append((node.id, node.epoch, node.leader_epoch, pending, members))

    def _advance(self, node: Node) -> None:
        assert node.isr is not None
        isr = node.isr
        isr.advance(len(node.log), MIN_ISR, self.now, LAG_MS, lambda broker: self._epoch_of(node, broker))
        node.high_watermark = isr.high_watermark
        enough = len(isr.maximal) >= MIN_ISR
        while node.waiting and node.waiting[0].end <= isr.high_watermark:
            done = node.waiting.pop(0)
            if enough:
                self.recorder.tell(Acked, "producer", PLACE, done.value, done.end - 1)
            else:
                self.recorder.tell(Failed, "producer", PLACE, done.value, "too few replicas now")

    def _step_down(self, node: Node) -> None:
        for waiting in node.waiting:
            self.recorder.tell(Failed, "producer", PLACE, waiting.value, "not the leader")
        node.waiting.clear()
        if node.isr is not None:
            node.high_watermark = node.isr.high_watermark
            node.isr = None

    def _somebody(self) -> Node:
        return self.nodes[self.dice.choice(sorted(self.nodes))]

    def _acts(self, node: Node) -> bool:
        return node.alive and not node.paused

    def _hear_each_other(self, one: int, other: int) -> bool:
        both = {one, other}
        return not both & self.cut_off and all(self.nodes[each].alive for each in both)


WEIGHTED = {
    SimulatedCluster.produce: 10,
    SimulatedCluster.poll: 4,
    SimulatedCluster.fetch_somebody: 14,
    SimulatedCluster.deliver_request: 14,
    SimulatedCluster.deliver_answer: 14,
    SimulatedCluster.follow_somebody: 10,
    SimulatedCluster.decide_proposal: 6,
    SimulatedCluster.watch_somebody: 4,
    SimulatedCluster.sync: 2,
    SimulatedCluster.kill: 0.5,
    SimulatedCluster.start_somebody: 3,
    SimulatedCluster.pause: 0.5,
    SimulatedCluster.resume: 1.5,
    SimulatedCluster.isolate: 0.5,
    SimulatedCluster.heal: 1.5,
    SimulatedCluster.believe_dead_somebody: 0.3,
    SimulatedCluster.leave: 0.2,
    SimulatedCluster.elect: 0.3,
    SimulatedCluster.reassign: 0.3,
}
ACTIONS, WEIGHTS = list(WEIGHTED), list(WEIGHTED.values())
