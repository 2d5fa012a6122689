"""How a classic group rebalances: members join, a generation begins, the leader's assignment is awaited.

Empty → PreparingRebalance → CompletingRebalance → Stable, and back to PreparingRebalance from either of the last two;
a generation that begins without members is Empty. What members ask for is elsewhere; here is what follows from it, and
from the two timers of a group: `join` ends the joining phase, `sync` the wait for SyncGroups.
"""

from dataclasses import replace

from moldau.base.coordination import Decision, TimerKey
from moldau.base.errors import WireError
from moldau.groups.classic.builder import ClassicDecisionBuilder, without_pending_requests
from moldau.groups.classic.group import TRANSITIONS, ClassicGroup, State
from moldau.groups.environment import GroupEnvironment

MIN_JOIN_ROUND_MS = 1_000  # a rebalance time-out may be 0, and a round in which nobody came is followed by another


def rebalance_or_complete(builder: ClassicDecisionBuilder) -> None:
    """A member came, went or changed: begin to rebalance, or, if that is under way, see whether all have joined."""
    if State.PREPARING in TRANSITIONS[builder.group.state]:
        prepare(builder)
    else:
        complete_if_all_joined(builder)


def prepare(builder: ClassicDecisionBuilder) -> None:
    """Everybody has to join again, those who wait for an assignment too."""
    group = builder.group
    if group.state is State.COMPLETING:
        _cancel_assignment(builder)
    builder.cancel_timer("sync")
    builder.group = replace(builder.group, unsynced=frozenset()).transition_to(State.PREPARING, builder.env.now)
    if group.state is State.EMPTY:
        # Members of a new group tend to come together: a while is waited for all, instead of a rebalance for each.
        delay = builder.env.config.initial_rebalance_delay_ms
        remaining = max(builder.group.rebalance_timeout_ms - delay, 0)
        builder.group = replace(builder.group, initial_delay=(delay, remaining), new_member_added=False)
        builder.schedule("join", delay)
    elif builder.group.all_joined:
        complete(builder)
    else:
        builder.schedule("join", builder.group.rebalance_timeout_ms)


def complete_if_all_joined(builder: ClassicDecisionBuilder) -> None:
    """The joining phase ends when nobody is missing; the initial delay is waited for all the same."""
    group = builder.group
    if group.state is State.PREPARING and group.initial_delay is None and group.all_joined:
        complete(builder)


def complete(builder: ClassicDecisionBuilder) -> None:
    """The joining phase ends: who has not come is out, but for static members, whose sessions decide."""
    builder.cancel_timer("join")
    builder.group = replace(builder.group, initial_delay=None, new_member_added=False)
    missing = [each.member_id for each in builder.group.members.values() if not (each.joining or each.instance_id)]
    for member_id in missing:
        builder.remove_member(member_id)
    if builder.group.members and not _elect_leader(builder):
        # Static members alone: until one comes, or their sessions end.
        builder.schedule("join", max(builder.group.rebalance_timeout_ms, MIN_JOIN_ROUND_MS))
        return
    _begin_generation(builder)


def on_join_timeout(group: ClassicGroup, key: TimerKey, env: GroupEnvironment) -> Decision:
    """The timer `join`."""
    builder = ClassicDecisionBuilder(group, env)
    if group.state is not State.PREPARING:
        return builder.build()
    delay, remaining = group.initial_delay or (0, 0)
    if group.new_member_added and remaining:
        longer = min(env.config.initial_rebalance_delay_ms, remaining)
        builder.group = replace(group, initial_delay=(longer, max(remaining - delay, 0)), new_member_added=False)
        builder.schedule("join", longer)
    else:
        complete(builder)
    return builder.build()


def on_sync_timeout(group: ClassicGroup, key: TimerKey, env: GroupEnvironment) -> Decision:
    """The timer `sync`: who joined and did not ask for its assignment since is out."""
    builder = ClassicDecisionBuilder(group, env)
    if group.state in (State.COMPLETING, State.STABLE) and group.unsynced:
        for member_id in [each for each in group.members if each in group.unsynced]:
            builder.remove_member(member_id)
        prepare(builder)
    return builder.build()


def _cancel_assignment(builder: ClassicDecisionBuilder) -> None:
    """No assignment will come for this generation: who waits for one has to join again."""
    members = {}
    for member in builder.group.members.values():
        if member.syncing is not None:
            builder.fail_pending(replace(member, joining=None), WireError.REBALANCE_IN_PROGRESS, member.member_id)
            builder.reset_session_timer(member)
        members[member.member_id] = replace(member, syncing=None, assignment=b"")
    builder.group = replace(builder.group, members=members)


def _elect_leader(builder: ClassicDecisionBuilder) -> bool:
    """A leader that did not come leaves the lead to one that did; False if nobody came."""
    group = builder.group
    if group.leader is not None and group.members[group.leader].joining is not None:
        return True
    leader = next((each.member_id for each in group.members.values() if each.joining is not None), None)
    if leader is None:
        return False
    builder.group = replace(group, leader=leader)
    return True


def _begin_generation(builder: ClassicDecisionBuilder) -> None:
    group, now = builder.group, builder.env.now
    if not group.members:
        empty = replace(group, generation=group.generation + 1, protocol_name=None, unsynced=frozenset())
        builder.group = empty.transition_to(State.EMPTY, now)
        builder.write_group()
        return
    begun = replace(
        group,
        generation=group.generation + 1,
        protocol_name=group.chosen_protocol(),
        members={member.member_id: without_pending_requests(member) for member in group.members.values()},
        unsynced=frozenset(group.members),
    )
    builder.group = begun.transition_to(State.COMPLETING, now)
    for member in group.members.values():
        if member.joining is not None:
            builder.reply_joined(member.joining, member.member_id)
        builder.reset_session_timer(member)
    builder.schedule("sync", builder.group.rebalance_timeout_ms)


def loaded(group: ClassicGroup, env: GroupEnvironment) -> Decision:
    """A replay has brought the group back: its members have their sessions' time to be heard of."""
    builder = ClassicDecisionBuilder(group, env)
    for member in group.members.values():
        builder.reset_session_timer(member)
    if len(group.members) > env.config.max_size or (group.members and group.leader is None):
        # The limit was lowered: who joins first is in, and all may commit before. Or it was about to do so anyway.
        prepare(builder)
    return builder.build()
