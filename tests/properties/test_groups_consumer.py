"""Any interleaving of members of both protocols: a partition has one owner, the log has the state, and it settles."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moldau.groups.classic.group import ClassicGroup
from moldau.groups.consumer.group import ConsumerGroup
from moldau.groups.environment import GroupConfig
from support.groups.group_clients import GROUP, ClassicClient, Client, ConsumerClient, Coordinator, topic_id

MOST_CLIENTS = 6
INSTANCES = st.sampled_from((None, None, None, "one", "two"))
SUBSCRIPTIONS = st.sampled_from((("t",), ("t",), ("t", "u"), ("u",), ("later",), ()))
REGEXES = st.sampled_from(("", "", "", "t|u", ".*"))
PICK = st.integers(0, 100)


class Groups(RuleBasedStateMachine):
    @initialize(
        interval=st.sampled_from((0, 1000)),
        policy=st.sampled_from(("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")),
        classic=st.lists(INSTANCES, max_size=3, unique_by=lambda instance: instance or object()),
    )
    def begin(self, interval: int, policy: str, classic: list[str | None]) -> None:
        config = GroupConfig(
            consumer_assignment_interval_ms=interval, consumer_migration_policy=policy, initial_rebalance_delay_ms=0
        )
        self.counts = {"t": 4, "u": 3}
        self.topics_changed = False
        self.coordinator = Coordinator(config, self.counts)
        self.clients: list[Client] = []
        self.born = 0
        for instance in classic:
            self.classic_comes(("t", "u"), instance)
        self.go_on(4)

    def go_on(self, rounds: int) -> None:
        """Everybody does what it has to, for a while."""
        for _ in range(rounds):
            for client in self.clients:
                client.step()
                client.step()
            self.coordinator.wait(2500)

    @property
    def group(self) -> ConsumerGroup | ClassicGroup | None:
        return self.coordinator.shard.groups.get(GROUP)

    def a_client(self, pick: int, wanted: Callable[[Client], bool] = lambda client: True) -> Client | None:
        found = [client for client in self.clients if wanted(client)]
        return found[pick % len(found)] if found else None

    # -- what happens

    @rule(topics=SUBSCRIPTIONS, regex=REGEXES, instance=INSTANCES)
    def consumer_comes(self, topics: tuple[str, ...], regex: str, instance: str | None) -> None:
        if len(self.clients) < MOST_CLIENTS and not self.instance_in_use(instance):
            self.born += 1
            self.clients.append(ConsumerClient(self.coordinator, f"c{self.born}", topics, regex, instance))
            self.clients[-1].step()

    @rule(topics=SUBSCRIPTIONS, instance=INSTANCES)
    def classic_comes(self, topics: tuple[str, ...], instance: str | None) -> None:
        if len(self.clients) < MOST_CLIENTS and not self.instance_in_use(instance):
            self.born += 1
            self.clients.append(ClassicClient(self.coordinator, f"k{self.born}", topics, instance))
            self.clients[-1].step()

    def instance_in_use(self, instance: str | None) -> bool:
        return instance is not None and any(client.instance == instance for client in self.clients)

    @rule(pick=PICK, lost=st.booleans(), busy=st.booleans(), times=st.integers(1, 3))
    def step(self, pick: int, lost: bool, busy: bool, times: int) -> None:
        if (client := self.a_client(pick)) is not None:
            client.lose_reply, client.busy = lost, busy
            for _ in range(times):
                client.step()
            client.lose_reply = client.busy = False

    @rule(rounds=st.integers(1, 3))
    def everybody_steps(self, rounds: int) -> None:
        self.go_on(rounds)

    @rule(pick=PICK)
    def classic_gives_up_waiting(self, pick: int) -> None:
        client = self.a_client(pick, lambda each: isinstance(each, ClassicClient) and each.waiting)
        if isinstance(client, ClassicClient):
            client.give_up_waiting()

    @rule(pick=PICK, topics=SUBSCRIPTIONS, regex=REGEXES)
    def subscribes_otherwise(self, pick: int, topics: tuple[str, ...], regex: str) -> None:
        client = self.a_client(pick)
        if client is None:
            return
        client.topics = topics
        if isinstance(client, ConsumerClient):
            client.regex, client.says_all = regex, True
        elif not client.waiting:
            client.next = "join"
        client.step()

    @rule(pick=PICK, for_a_while=st.booleans())
    def leaves(self, pick: int, for_a_while: bool) -> None:
        if (client := self.a_client(pick)) is None:
            return
        self.clients.remove(client)
        if isinstance(client, ConsumerClient) and client.instance and for_a_while:
            client.leave(-2)
        else:
            client.leave()

    @rule(pick=PICK, topics=SUBSCRIPTIONS)
    def comes_back_with_the_other_protocol(self, pick: int, topics: tuple[str, ...]) -> None:
        client = self.a_client(pick, lambda each: each.instance is not None)
        if client is None:
            return
        self.clients.remove(client)
        if isinstance(client, ConsumerClient):
            client.leave(-2)
            self.classic_comes(topics, client.instance)
        else:
            client.gone = True
            self.consumer_comes(topics, "", client.instance)

    @rule(pick=PICK)
    def dies(self, pick: int) -> None:
        if (client := self.a_client(pick)) is not None:
            client.gone = True
            self.clients.remove(client)

    @rule(ms=st.sampled_from((1, 999, 1000, 5000, 9999, 31_000, 46_000)))
    def time_passes(self, ms: int) -> None:
        self.coordinator.wait(ms)

    @rule(name=st.sampled_from(("t", "u", "later")), count=st.integers(0, 5))
    def topic_changes(self, name: str, count: int) -> None:
        if count == 0:
            self.counts.pop(name, None)
            for client in self.clients:  # nothing is left to own
                client.owned.pop(name, None)
                if isinstance(client, ConsumerClient) and client.told is not None:
                    client.told.pop(name, None)
        else:
            self.counts[name] = max(self.counts.get(name, 0), count)
        self.coordinator.set_topics(self.counts)
        self.topics_changed = True

    @rule()
    def restart(self) -> None:
        self.coordinator.restart()
        for client in self.clients:
            if isinstance(client, ClassicClient) and client.waiting:
                client.give_up_waiting()

    @rule(pick=PICK)
    def a_write_fails(self, pick: int) -> None:
        self.coordinator.append_fails = True
        client = self.a_client(pick)
        if client is not None:
            client.step()
            if isinstance(client, ClassicClient) and client.waiting:
                client.give_up_waiting()
        self.coordinator.append_fails = False

    # -- what always holds

    @invariant()
    def nobody_owns_what_another_owns(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        members = self.group.members if self.group is not None else {}
        seen: dict[tuple[str, int], str] = {}
        for client in self.clients:
            if client.member_id not in members:
                continue  # it is out, and will hear of it
            for name, partitions in client.owned.items():
                for partition in partitions:
                    other = seen.setdefault((name, partition), client.id)
                    assert other == client.id, f"{other} and {client.id} own {name}-{partition}"

    @invariant()
    def the_coordinator_knows_who_owns_what(self) -> None:
        if not hasattr(self, "coordinator") or not isinstance(self.group, ConsumerGroup):
            return
        owners: dict[tuple[object, int], str] = {}
        for member in self.group.members.values():
            for held in (member.assigned, member.pending_revocation):
                for topic, partitions in held.items():
                    for partition in partitions:
                        assert owners.setdefault((topic, partition), member.id) == member.id
        assert owners == {
            (topic, partition): owner
            for topic, partitions in self.group.owners.items()
            for partition, owner in partitions.items()
        }
        assert self.group.instances == {
            member.instance_id: member.id for member in self.group.members.values() if member.instance_id is not None
        }
        assert self.group.targets.keys() <= self.group.members.keys()

    @invariant()
    def the_log_holds_what_counts(self) -> None:
        if not hasattr(self, "coordinator") or not isinstance(self.group, ConsumerGroup):
            return
        replayed = self.coordinator.replayed().groups.get(GROUP)
        assert replayed == replace(self.group, rejoining=frozenset(), regex_progress=None)

    # -- and in the end

    @precondition(lambda self: bool(self.clients))
    @rule()
    def it_settles(self) -> None:
        self.go_on(40)
        for client in self.clients:  # no request may be pending now
            assert not (isinstance(client, ClassicClient) and client.waiting), client.id
        if self.group is None or not self.is_one_of(self.group):
            return
        if isinstance(self.group, ConsumerGroup):
            self.check_settled(self.group)
        elif not self.topics_changed:  # which classic leaders would have to look for themselves
            self.check_all_taken()

    def is_one_of(self, group: ConsumerGroup | ClassicGroup) -> bool:
        """Whether all clients are in: some may not come in while migration is not allowed."""
        return all(client.member_id in group.members for client in self.clients)

    def check_settled(self, group: ConsumerGroup) -> None:
        assert group.state == "Stable"
        names = {topic_id(name): name for name in self.counts}
        owned: dict[str, dict[str, frozenset[int]]] = {
            member.id: {names[topic]: frozenset(each) for topic, each in member.assigned.items()}
            for member in group.members.values()
        }
        for client in self.clients:
            assert client.owned == owned[client.member_id], client.id
        wanted = self.check_all_taken()
        sizes = [sum(map(len, client.owned.values())) for client in self.clients]
        if len({frozenset(each) for each in wanted.values()}) == 1:
            assert max(sizes) - min(sizes) <= 1

    def check_all_taken(self) -> dict[str, set[str]]:
        """What is wanted, by client; each partition of it has one owner."""
        wanted = {client.id: self.subscription(client) for client in self.clients}
        everything = {(name, number) for name in set().union(*wanted.values()) for number in range(self.counts[name])}
        taken = [(name, number) for client in self.clients for name, each in client.owned.items() for number in each]
        assert sorted(taken) == sorted(everything)
        return wanted

    def subscription(self, client: Client) -> set[str]:
        topics = {name for name in client.topics if name in self.counts}
        if isinstance(client, ConsumerClient):
            by_regex = {".*": set(self.counts), "t|u": {"t", "u"} & self.counts.keys(), "": set()}
            topics |= by_regex[client.regex]
        return topics


Groups.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase


def test_what_a_classic_member_left_is_assigned_by_an_upgrade() -> None:
    """Found by the machine above: the new member wanted nothing, so free partitions stayed unassigned."""
    groups = Groups()
    groups.begin(interval=0, policy="bidirectional", classic=[None, None])
    groups.leaves(for_a_while=False, pick=0)
    groups.consumer_comes(instance=None, regex="", topics=())
    groups.it_settles()


def test_what_the_last_consumer_left_is_given_away_though_the_coordinator_fails_meanwhile() -> None:
    """The group is a classic one by then, which was about to rebalance: its log has to say so."""
    groups = Groups()
    groups.begin(interval=0, policy="bidirectional", classic=[None, None])
    groups.consumer_comes(instance=None, regex="", topics=("t", "u"))
    groups.it_settles()
    groups.leaves(for_a_while=False, pick=2)
    groups.restart()
    groups.go_on(10)
    assert isinstance(groups.group, ClassicGroup)
    owned = [(name, number) for client in groups.clients for name, each in client.owned.items() for number in each]
    assert sorted(owned) == [(name, number) for name, count in groups.counts.items() for number in range(count)]
