"""How a classic group rebalances: members join, a generation begins, the leader's assignment is awaited.

Empty → PreparingRebalance → CompletingRebalance → Stable, and back to PreparingRebalance from either of the last two;
a generation that begins without members is Empty. What members ask for is elsewhere; here is what follows from it, and
from the two timers of a group: `join` ends the joining phase, `sync` the wait for SyncGroups.
"""

from dataclasses import replace

from moldau.base.coordination import Decision, TimerKey
from moldau.base.errors import WireError
from moldau.groups.classic.builder import Draft, no_longer_waiting
from moldau.groups.classic.group import TRANSITIONS, ClassicGroup, State
from moldau.groups.env import Env

LEAST_ROUND_MS = 1_000  # a rebalance time-out may be 0, and a round in which nobody came is followed by another


def rebalance_or_complete(draft: Draft) -> None:
    """A member came, went or changed: begin to rebalance, or, if that is under way, see whether all have joined."""
    if State.PREPARING in TRANSITIONS[draft.group.state]:
        prepare(draft)
    else:
        complete_if_all_joined(draft)


def prepare(draft: Draft) -> None:
    """Everybody has to join again, those who wait for an assignment too."""
    group = draft.group
    if group.state is State.COMPLETING:
        _call_off_assignment(draft)
    draft.let_sleep("sync")
    draft.group = replace(draft.group, unsynced=frozenset()).moved(State.PREPARING, draft.env.now)
    if group.state is State.EMPTY:
        # Members of a new group tend to come together: a while is waited for all, instead of a rebalance for each.
        delay = draft.env.config.initial_rebalance_delay_ms
        remaining = max(draft.group.rebalance_timeout_ms - delay, 0)
        draft.group = replace(draft.group, initial_delay=(delay, remaining), delay_longer=False)
        draft.wake("join", delay)
    elif draft.group.all_joined:
        complete(draft)
    else:
        draft.wake("join", draft.group.rebalance_timeout_ms)


def complete_if_all_joined(draft: Draft) -> None:
    """The joining phase ends when nobody is missing; the initial delay is waited for all the same."""
    group = draft.group
    if group.state is State.PREPARING and group.initial_delay is None and group.all_joined:
        complete(draft)


def complete(draft: Draft) -> None:
    """The joining phase ends: who has not come is out, but for static members, whose sessions decide."""
    draft.let_sleep("join")
    draft.group = replace(draft.group, initial_delay=None, delay_longer=False)
    missing = [each.member_id for each in draft.group.members.values() if not (each.joining or each.instance_id)]
    for member_id in missing:
        draft.remove(member_id)
    if draft.group.members and not _elect_leader(draft):
        # Static members alone: until one comes, or their sessions end.
        draft.wake("join", max(draft.group.rebalance_timeout_ms, LEAST_ROUND_MS))
        return
    _begin_generation(draft)


def join_time_is_up(group: ClassicGroup, key: TimerKey, env: Env) -> Decision:
    """The timer `join`."""
    draft = Draft(group, env)
    if group.state is not State.PREPARING:
        return draft.decided()
    delay, remaining = group.initial_delay or (0, 0)
    if group.delay_longer and remaining:
        longer = min(env.config.initial_rebalance_delay_ms, remaining)
        draft.group = replace(group, initial_delay=(longer, max(remaining - delay, 0)), delay_longer=False)
        draft.wake("join", longer)
    else:
        complete(draft)
    return draft.decided()


def sync_time_is_up(group: ClassicGroup, key: TimerKey, env: Env) -> Decision:
    """The timer `sync`: who joined and did not ask for its assignment since is out."""
    draft = Draft(group, env)
    if group.state in (State.COMPLETING, State.STABLE) and group.unsynced:
        for member_id in [each for each in group.members if each in group.unsynced]:
            draft.remove(member_id)
        prepare(draft)
    return draft.decided()


def _call_off_assignment(draft: Draft) -> None:
    """No assignment will come for this generation: who waits for one has to join again."""
    members = {}
    for member in draft.group.members.values():
        if member.syncing is not None:
            draft.release(replace(member, joining=None), WireError.REBALANCE_IN_PROGRESS, member.member_id)
            draft.expect_heartbeat(member)
        members[member.member_id] = replace(member, syncing=None, assignment=b"")
    draft.group = replace(draft.group, members=members)


def _elect_leader(draft: Draft) -> bool:
    """A leader that did not come leaves the lead to one that did; False if nobody came."""
    group = draft.group
    if group.leader is not None and group.members[group.leader].joining is not None:
        return True
    leader = next((each.member_id for each in group.members.values() if each.joining is not None), None)
    if leader is None:
        return False
    draft.group = replace(group, leader=leader)
    return True


def _begin_generation(draft: Draft) -> None:
    group, now = draft.group, draft.env.now
    if not group.members:
        empty = replace(group, generation=group.generation + 1, protocol_name=None, unsynced=frozenset())
        draft.group = empty.moved(State.EMPTY, now)
        draft.write()
        return
    begun = replace(
        group,
        generation=group.generation + 1,
        protocol_name=group.chosen_protocol(),
        members={member.member_id: no_longer_waiting(member) for member in group.members.values()},
        unsynced=frozenset(group.members),
    )
    draft.group = begun.moved(State.COMPLETING, now)
    for member in group.members.values():
        if member.joining is not None:
            draft.reply_joined(member.joining, member.member_id)
        draft.expect_heartbeat(member)
    draft.wake("sync", draft.group.rebalance_timeout_ms)


def loaded(group: ClassicGroup, env: Env) -> Decision:
    """A replay has brought the group back: its members have their sessions' time to be heard of."""
    draft = Draft(group, env)
    for member in group.members.values():
        draft.expect_heartbeat(member)
    if len(group.members) > env.config.max_size or (group.members and group.leader is None):
        # The limit was lowered: who joins first is in, and all may commit before. Or it was about to do so anyway.
        prepare(draft)
    return draft.decided()
