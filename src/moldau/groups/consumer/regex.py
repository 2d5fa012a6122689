"""Subscriptions by regular expression: resolution to topics, kept up to date in records of the group.

Expressions are untrusted input, so RE2 matches them: linear time, bounded memory. Resolution blocks the coordinator, so
it is done in turns; a timer starts the next one. As in Kafka an expression has to match the whole name, and internal
topics are matched, too.
"""

from itertools import islice
from typing import Final

import re2

from moldau.base.errors import Refusal, WireError
from moldau.groups.consumer.builder import REGEX, ConsumerDecisionBuilder
from moldau.groups.consumer.group import ConsumerGroup, RegexProgress, ResolvedRegex
from moldau.groups.environment import GroupEnvironment, Topics

MAX_PATTERN_BYTES: Final = 16_384  # the longest expression
MAX_UNICODE_CLASSES: Final = 32  # of an expression: each takes 0.1 ms to compile
MAX_PATTERN_MEMORY: Final = 256 * 1024  # of a compiled expression
STEPS_PER_TURN: Final = 10_000_000  # of RE2, in the worst case: some ten milliseconds
STEPS_PER_TOPIC: Final = 2_000  # fixed cost of a match
REFRESH_MS: Final = 10_000  # least time between two resolutions because of new topics


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_PATTERN_MEMORY
    return options


def check(regex: str) -> Refusal | None:
    """Why an expression cannot be used, or None."""
    fault = _fault(regex)
    if fault is None:
        return None
    message = f"SubscribedTopicRegex `{regex[:200]}` is not a valid regular expression: {fault}."
    return Refusal(WireError.INVALID_REGULAR_EXPRESSION, message)


def _fault(regex: str) -> str | None:
    if len(regex.encode()) > MAX_PATTERN_BYTES:
        return f"it is longer than {MAX_PATTERN_BYTES} bytes"
    if regex.count("\\p") + regex.count("\\P") > MAX_UNICODE_CLASSES:
        return f"it has more than {MAX_UNICODE_CLASSES} Unicode classes"
    try:
        re2.compile(regex.encode(), _options())
    except re2.error as error:
        return bytes(error.args[0]).decode(errors="replace")
    return None


def resolve(builder: ConsumerDecisionBuilder, env: GroupEnvironment) -> bool:
    """One turn: resolve expressions that are new or due. True if one matches other topics than before."""
    changed, steps = False, STEPS_PER_TURN
    while steps > 0 and (regex := _next_due(builder.group, env)) is not None:
        progress, steps = _advance(_progress_of(builder.group, regex, env), env.topics, steps)
        if progress.topics_checked < len(env.topics.by_name):
            builder.set_regex_progress(progress)
            break
        before = builder.group.regexes.get(regex)
        builder.write_regex(regex, ResolvedRegex(progress.matched, progress.version, progress.at))
        builder.set_regex_progress(None)
        changed = changed or progress.matched != (before.topics if before else frozenset())
    builder.set_timer(REGEX, None, next_turn(builder.group, env))
    return changed


def next_turn(group: ConsumerGroup, env: GroupEnvironment) -> int | None:
    """When the next expression is due; None without expressions."""
    times = [_due(group, regex, env) for regex in group.subscribed_regexes]
    return max(min(times), env.now) if times else None


def drop_unused(builder: ConsumerDecisionBuilder, regex: str) -> None:
    """Delete an expression that no member uses any more."""
    if regex in builder.group.regexes and regex not in builder.group.subscribed_regexes:
        builder.delete_regex(regex)


def _due(group: ConsumerGroup, regex: str, env: GroupEnvironment) -> int:
    resolved = group.regexes.get(regex)
    if resolved is None or resolved.at > env.now:  # or resolved by a coordinator with its clock ahead
        return env.now
    if resolved.version != env.topics.version:
        return resolved.at + REFRESH_MS
    return resolved.at + env.config.consumer_regex_refresh_interval_ms


def _next_due(group: ConsumerGroup, env: GroupEnvironment) -> str | None:
    """The expression in progress, or else the one that is overdue longest."""
    due = {regex: _due(group, regex, env) for regex in group.subscribed_regexes}
    if group.regex_progress is not None and due.get(group.regex_progress.regex, env.now + 1) <= env.now:
        return group.regex_progress.regex
    first = min(due, key=lambda regex: (due[regex], regex), default=None)
    return first if first is not None and due[first] <= env.now else None


def _progress_of(group: ConsumerGroup, regex: str, env: GroupEnvironment) -> RegexProgress:
    progress = group.regex_progress
    if progress is not None and progress.regex == regex and progress.version == env.topics.version:
        return progress
    return RegexProgress(regex, env.topics.version, env.now, frozenset(), 0)


def _advance(progress: RegexProgress, topics: Topics, steps: int) -> tuple[RegexProgress, int]:
    """The progress after as many topics as the steps allow, at least one; and the steps left."""
    if _fault(progress.regex) is not None:  # accepted by a broker with other limits
        return progress._replace(topics_checked=len(topics.by_name)), steps - STEPS_PER_TOPIC
    pattern = re2.compile(progress.regex.encode(), _options())
    matched, topics_checked = set(progress.matched), progress.topics_checked
    for name in islice(topics.by_name, topics_checked, None):
        if steps <= 0:
            break
        steps -= STEPS_PER_TOPIC + pattern.programsize * len(name)
        topics_checked += 1
        if pattern.fullmatch(name.encode()) is not None:
            matched.add(name)
    return progress._replace(matched=frozenset(matched), topics_checked=topics_checked), steps
