"""ConsumerGroupHeartbeat 0–1 (KIP-848): members join, report their partitions, get their assignment, and leave.

The member epoch says what a request does: 0 joins, -1 leaves, -2 is a static member that leaves for a while, any other
is a heartbeat. Regular expressions, members of the classic protocol, and migration between the protocols are in files
of their own.
"""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from moldau.base.coordination import Caller, Decision, TimerKey
from moldau.base.errors import Refusal, WireError
from moldau.groups.classic.group import ClassicGroup
from moldau.groups.consumer import regex as consumer_regex
from moldau.groups.consumer.builder import JOIN, REBALANCE, REGEX, SESSION, SYNC, ConsumerDecisionBuilder
from moldau.groups.consumer.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    AssignedPartitions,
    ConsumerGroup,
    Member,
    MemberState,
)
from moldau.groups.consumer.migration import downgrade, is_stable_or_empty, may_downgrade, upgrade
from moldau.groups.consumer.reconciliation import Owned, Reconciliation, next_step
from moldau.groups.consumer.target_assignment import assign_if_due, bump_epoch, offered_assignors
from moldau.groups.environment import GroupConfig, GroupEnvironment
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupTopicPartitions,
)


def heartbeat(
    group: ConsumerGroup | ClassicGroup | None,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
    env: GroupEnvironment,
) -> Decision:
    refusal = _invalid(request, caller.version, env.config)
    if refusal is not None:
        return _refused(caller, refusal)
    if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        return _leave(group, request, caller, env)
    if request.member_epoch != JOIN_EPOCH and not isinstance(group, ConsumerGroup):
        return _refused(caller, not_found(request.group_id, group))
    builder = (
        upgrade(group, env) if isinstance(group, ClassicGroup) else ConsumerDecisionBuilder(group, request.group_id)
    )
    if isinstance(builder, Refusal):
        return _refused(caller, builder)
    return _heartbeat(builder, request, caller, env, due=not is_stable_or_empty(group))


def _heartbeat(
    builder: ConsumerDecisionBuilder,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
    env: GroupEnvironment,
    due: bool,
) -> Decision:
    """Join or heartbeat. `due`: the target is due for other reasons than this request."""
    if is_full(builder.group, request.member_id, env.config):
        limit = env.config.consumer_max_size
        message = f"The consumer group has reached its maximum capacity of {limit} members."
        return _refused(caller, Refusal(WireError.GROUP_MAX_SIZE_REACHED, message))
    owned = _owned(request)
    before = _member(builder, request, owned, env)
    if isinstance(before, Refusal):
        return _refused(caller, before)
    after = _updated_member(before, request, caller)
    if after.regex and after.regex != before.regex:
        refusal = consumer_regex.check(after.regex)
        if refusal is not None:
            return _refused(caller, refusal)
    changed = subscribe(builder, before, after, env)
    if due and not changed:
        bump_epoch(builder, env, changed=True)
    assign_if_due(builder, env)
    refusal = reconcile(builder, after.id, owned, changed, env)
    if refusal is not None:
        return _refused(caller, refusal)
    config = env.config_of(request.group_id)
    builder.set_timer(SESSION, after.id, env.now + config.consumer_session_timeout_ms)
    member = builder.group.members[after.id]
    send_assignment = (
        request.member_epoch == JOIN_EPOCH or _is_full_request(request) or member.assigned != before.assigned
    )
    return builder.reply(
        caller,
        ConsumerGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=config.consumer_heartbeat_interval_ms,
            assignment=_assignment(member.assigned) if send_assignment else None,
        ),
    )


def _invalid(request: ConsumerGroupHeartbeatRequest, version: int, config: GroupConfig) -> Refusal | None:
    """Errors of the request that do not depend on the group."""
    if not config.consumer_enabled:
        return Refusal.of(WireError.UNSUPPORTED_VERSION)
    epoch = request.member_epoch
    needs_member_id = version >= 1 or epoch > 0 or epoch == LEAVE_EPOCH  # KIP-1082: clients generate their ids
    joins = epoch == JOIN_EPOCH
    without_subscription = request.subscribed_topic_names is None and request.subscribed_topic_regex is None
    rules = (
        (needs_member_id and not request.member_id.strip(), "MemberId can't be empty."),
        (not request.group_id.strip(), "GroupId can't be empty."),
        (_is_blank(request.instance_id), "InstanceId can't be empty."),
        (_is_blank(request.rack_id), "RackId can't be empty."),
        (joins and request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request."),
        (joins and request.topic_partitions != (), "TopicPartitions must be empty when (re-)joining."),
        (
            joins and without_subscription,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        (epoch == STATIC_LEAVE_EPOCH and request.instance_id is None, "InstanceId can't be null."),
        (epoch < STATIC_LEAVE_EPOCH, "MemberEpoch is invalid."),
    )
    broken = next((message for is_broken, message in rules if is_broken), None)
    if broken is not None:
        return Refusal(WireError.INVALID_REQUEST, broken)
    offered = offered_assignors(config)
    if request.server_assignor is not None and request.server_assignor not in offered:
        message = (
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(offered)}."
        )
        return Refusal(WireError.UNSUPPORTED_ASSIGNOR, message)
    return None


def _is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def is_full(group: ConsumerGroup, member_id: str, config: GroupConfig) -> bool:
    return len(group.members) >= config.consumer_max_size and member_id not in group.members


def not_found(group_id: str, group: object) -> Refusal:
    fault = "not found" if group is None else "is not a consumer group"
    return Refusal(WireError.GROUP_ID_NOT_FOUND, f"Group {group_id} {fault}.")


# The member of a request


def _member(
    builder: ConsumerDecisionBuilder, request: ConsumerGroupHeartbeatRequest, owned: Owned | None, env: GroupEnvironment
) -> Member | Refusal:
    if request.instance_id is None:
        member = builder.group.members.get(request.member_id)
        if member is None and request.member_epoch != JOIN_EPOCH:
            return unknown_member(builder.group, request.member_id)
        return _check_epoch(member, request, owned) if member else Member(request.member_id or env.new_id())
    return _static_member(builder, request, owned, env)


def _static_member(
    builder: ConsumerDecisionBuilder, request: ConsumerGroupHeartbeatRequest, owned: Owned | None, env: GroupEnvironment
) -> Member | Refusal:
    held_by = builder.group.static_member(request.instance_id)
    if request.member_epoch == JOIN_EPOCH:
        new_id = request.member_id or env.new_id()
        if held_by is None:
            return builder.group.members.get(new_id) or Member(new_id)
        if held_by.classic is None and held_by.epoch != STATIC_LEAVE_EPOCH:
            message = (
                f"Static member {new_id} with instance id {request.instance_id} cannot join the group because the "
                f"instance id is owned by {held_by.id} member."
            )
            return Refusal(WireError.UNRELEASED_INSTANCE_ID, message)
        return replace_member(builder, held_by, new_id)
    refusal = check_instance(held_by, request.instance_id, request.member_id)
    if held_by is None or refusal is not None:
        return refusal or unknown_member(builder.group, request.member_id)
    return _check_epoch(held_by, request, owned)


def unknown_member(group: ConsumerGroup, member_id: str) -> Refusal:
    return Refusal(WireError.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")


def check_instance(held_by: Member | None, instance_id: str | None, member_id: str) -> Refusal | None:
    """Why a member id is not the one of an instance id; None if it is."""
    if held_by is None:
        return Refusal(WireError.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if held_by.id != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {held_by.id}."
        return Refusal(WireError.FENCED_INSTANCE_ID, message)
    return None


def _check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest, owned: Owned | None) -> Member | Refusal:
    """The member, if the request has its epoch.

    The previous epoch is accepted, too, if the member owns only partitions that are assigned to it: the response with
    the new epoch may have been lost.
    """
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.epoch):
        return member
    if epoch == member.previous_epoch and epoch < member.epoch and _within(owned, member.assigned):
        return member
    relation = "greater" if epoch > member.epoch else "smaller"
    message = (
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
    )
    return Refusal(WireError.FENCED_MEMBER_EPOCH, message)


def _within(owned: Owned | None, assigned: AssignedPartitions) -> bool:
    return owned is not None and all(partitions <= assigned.get(each, {}).keys() for each, partitions in owned.items())


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    owned: dict[UUID, frozenset[int]] = {}
    for topic in request.topic_partitions:
        owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _updated_member(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Member:
    """The member with the fields of the request; null and -1 mean unchanged."""
    names, regex, timeout = request.subscribed_topic_names, request.subscribed_topic_regex, request.rebalance_timeout_ms
    fields = (request.instance_id, request.rack_id, request.server_assignor, names, regex)
    same_client = member.client_id == caller.client_id and member.client_host == caller.client_host
    if same_client and timeout == -1 and member.classic is None and fields == (None,) * len(fields):
        return member  # the common heartbeat
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == -1 else timeout,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topics=member.topics if names is None else frozenset(names),
        regex=member.regex if regex is None else regex,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )


def _is_full_request(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has all fields, as after an error of the client: the response has the whole assignment."""
    subscribed = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribed and request.topic_partitions is not None


def _assignment(assigned: AssignedPartitions) -> ConsumerGroupAssignment:
    topics = (
        ConsumerGroupTopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
        for topic_id, partitions in assigned.items()
    )
    return ConsumerGroupAssignment(topic_partitions=tuple(topics))


# For members of both protocols


def replace_member(builder: ConsumerDecisionBuilder, old: Member, new_id: str) -> Member:
    """Replace a static member that is back with a new id; it keeps its assignment."""
    target = builder.group.targets.get(old.id, {})
    new = replace(old, id=new_id, epoch=JOIN_EPOCH, previous_epoch=0)
    builder.delete_member(old.id)
    builder.write_member(new)
    builder.write_target(new.id, target)
    builder.write_current(new)
    return new


def subscribe(builder: ConsumerDecisionBuilder, before: Member, after: Member, env: GroupEnvironment) -> bool:
    """Write the member if it changed; True, with a new group epoch, if its subscription changed."""
    if after != before:
        builder.write_member(after)
    changed = after.topics != before.topics
    if after.regex != before.regex:
        consumer_regex.drop_unused(builder, before.regex)
        consumer_regex.resolve(builder, env)
        changed = True
    if changed:
        bump_epoch(builder, env, changed=True)
    return changed


def reconcile(
    builder: ConsumerDecisionBuilder, member_id: str, owned: Owned | None, changed: bool, env: GroupEnvironment
) -> Refusal | None:
    """Reconcile the member with its target; set the timer for the revocation of partitions."""
    group = builder.group
    member = group.members[member_id]
    if not changed and member.reconciled(group.assignment_epoch):
        return None
    moved = next_step(Reconciliation(group, member, group.targets.get(member_id, {}), owned, env.topics, changed))
    if isinstance(moved, Refusal):
        return moved
    if moved == member:
        return None
    builder.write_current(moved)
    if moved.classic is None:
        waits = moved.state is MemberState.UNREVOKED_PARTITIONS
        builder.set_timer(REBALANCE, moved.id, env.now + moved.rebalance_timeout_ms if waits else None)
    return None


def fence(builder: ConsumerDecisionBuilder, members: Iterable[Member], env: GroupEnvironment) -> None:
    """Remove members; a new target is due. If only classic members are left the group is downgraded."""
    leaving = list(members)
    ids = {member.id for member in leaving}
    if may_downgrade(builder.group, ids, env):
        downgrade(builder, ids, True, env)
        return
    for member in leaving:
        builder.delete_member(member.id)
    for member in leaving:
        consumer_regex.drop_unused(builder, member.regex)
    bump_epoch(builder, env, changed=True)


# Leaving


def _leave(
    group: ConsumerGroup | ClassicGroup | None,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
    env: GroupEnvironment,
) -> Decision:
    if not isinstance(group, ConsumerGroup):
        return _refused(caller, not_found(request.group_id, group))
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        refusal = None if member else unknown_member(group, request.member_id)
    else:
        member = group.static_member(request.instance_id)
        refusal = check_instance(member, request.instance_id, request.member_id)
    if member is None or refusal is not None:
        return _refused(caller, refusal or unknown_member(group, request.member_id))
    builder = ConsumerDecisionBuilder(group, request.group_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        zeroed = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()}
        builder.write_current(replace(member, epoch=STATIC_LEAVE_EPOCH, assigned=zeroed, pending_revocation={}))
    else:
        fence(builder, [member], env)
    response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    return builder.reply(caller, response)


def _refused(caller: Caller, refusal: Refusal) -> Decision:
    response = ConsumerGroupHeartbeatResponse(error_code=refusal.error, error_message=refusal.message)
    return Decision.reply(caller, response)


# Timers, loading, changes of topics


def on_timer(group: ConsumerGroup, key: TimerKey, env: GroupEnvironment) -> Decision:
    """Handle a timer of the group or of a member. The member may be gone."""
    purpose, group_id, *rest = key
    builder = ConsumerDecisionBuilder(group, group_id)
    member = builder.group.members.get(rest[0]) if rest else None
    if member is not None and _is_timed_out(purpose, member):
        fence(builder, [member], env)
    if purpose == REGEX and consumer_regex.resolve(builder, env):
        bump_epoch(builder, env, changed=True)
    return builder.decision


def _is_timed_out(purpose: str, member: Member) -> bool:
    if purpose == REBALANCE:  # for an absent static member only its session counts
        return member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch != STATIC_LEAVE_EPOCH
    return purpose in (SESSION, JOIN, SYNC)


def session_timeout_ms(member: Member, config: GroupConfig) -> int:
    return config.consumer_session_timeout_ms if member.classic is None else member.classic.session_timeout_ms


def loaded(group: ConsumerGroup, env: GroupEnvironment) -> Decision:
    """After a load: start the timers, and check for changes of topics."""
    builder = ConsumerDecisionBuilder(group, group.group_id)
    config = env.config_of(group.group_id)
    for member in group.members.values():
        builder.set_timer(SESSION, member.id, env.now + session_timeout_ms(member, config))
        if member.classic is None and _is_timed_out(REBALANCE, member):
            builder.set_timer(REBALANCE, member.id, env.now + member.rebalance_timeout_ms)
    _check_topics(builder, env)
    return builder.decision


def topics_changed(group: ConsumerGroup, env: GroupEnvironment) -> Decision:
    builder = ConsumerDecisionBuilder(group, group.group_id)
    _check_topics(builder, env)
    return builder.decision


def _check_topics(builder: ConsumerDecisionBuilder, env: GroupEnvironment) -> None:
    """Bump the epoch if subscribed topics changed; the next heartbeat computes the target."""
    if builder.group.members:
        bump_epoch(builder, env, changed=False)
        if builder.group.subscribed_regexes:
            builder.set_timer(REGEX, None, consumer_regex.next_turn(builder.group, env))
