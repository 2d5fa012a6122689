"""Rebalances of a classic group: the join phase, new generations, and the timers of both phases.

Empty → PreparingRebalance → CompletingRebalance → Stable, and back to PreparingRebalance from either of the last two. A
generation without members is Empty. The timer `join` ends the join phase, `sync` the wait for SyncGroups.
"""

from dataclasses import replace

from moldau.base.coordination import Decision, TimerKey
from moldau.base.errors import WireError
from moldau.groups.classic.builder import ClassicDecisionBuilder, without_pending_requests
from moldau.groups.classic.group import TRANSITIONS, ClassicGroup, State
from moldau.groups.environment import GroupEnvironment

MIN_JOIN_ROUND_MS = 1_000  # before another join phase after one without members; a rebalance timeout may be 0


def rebalance_or_complete(builder: ClassicDecisionBuilder) -> None:
    """Start a rebalance; if one is in progress, complete it if all members have joined."""
    if State.PREPARING in TRANSITIONS[builder.group.state]:
        prepare(builder)
    else:
        complete_if_all_joined(builder)


def prepare(builder: ClassicDecisionBuilder) -> None:
    """Start a rebalance: all members have to join again."""
    group = builder.group
    if group.state is State.COMPLETING:
        _cancel_assignment(builder)
    builder.cancel_timer("sync")
    builder.group = replace(builder.group, unsynced=frozenset()).transition_to(State.PREPARING, builder.env.now)
    if group.state is State.EMPTY:
        # Members of a new group start together: wait for all of them instead of rebalancing for each.
        delay = builder.env.config.initial_rebalance_delay_ms
        remaining = max(builder.group.rebalance_timeout_ms - delay, 0)
        builder.group = replace(builder.group, initial_delay=(delay, remaining), new_member_added=False)
        builder.schedule("join", delay)
    elif builder.group.all_joined:
        complete(builder)
    else:
        builder.schedule("join", builder.group.rebalance_timeout_ms)


def complete_if_all_joined(builder: ClassicDecisionBuilder) -> None:
    """End the join phase when all members have joined, but not before the initial delay is over."""
    group = builder.group
    if group.state is State.PREPARING and group.initial_delay is None and group.all_joined:
        complete(builder)


def complete(builder: ClassicDecisionBuilder) -> None:
    """End the join phase: remove dynamic members that did not join. Static members stay until their session ends."""
    builder.cancel_timer("join")
    builder.group = replace(builder.group, initial_delay=None, new_member_added=False)
    missing = [each.member_id for each in builder.group.members.values() if not (each.joining or each.instance_id)]
    for member_id in missing:
        builder.remove_member(member_id)
    if builder.group.members and not _elect_leader(builder):
        # Only static members that did not join: wait for one of them, or for their session timeouts.
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
    """The timer `sync`: remove members that joined and sent no SyncGroup."""
    builder = ClassicDecisionBuilder(group, env)
    if group.state in (State.COMPLETING, State.STABLE) and group.unsynced:
        for member_id in [each for each in group.members if each in group.unsynced]:
            builder.remove_member(member_id)
        prepare(builder)
    return builder.build()


def _cancel_assignment(builder: ClassicDecisionBuilder) -> None:
    """Fail pending SyncGroups: this generation gets no assignment."""
    members = {}
    for member in builder.group.members.values():
        if member.syncing is not None:
            builder.fail_pending(replace(member, joining=None), WireError.REBALANCE_IN_PROGRESS, member.member_id)
            builder.reset_session_timer(member)
        members[member.member_id] = replace(member, syncing=None, assignment=b"")
    builder.group = replace(builder.group, members=members)


def _elect_leader(builder: ClassicDecisionBuilder) -> bool:
    """Elect another leader if the leader did not join; False if no member joined."""
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
    """After a load: start the session timers."""
    builder = ClassicDecisionBuilder(group, env)
    for member in group.members.values():
        builder.reset_session_timer(member)
    if len(group.members) > env.config.max_size or (group.members and group.leader is None):
        # group.max.size was lowered, or a rebalance was in progress.
        prepare(builder)
    return builder.build()
