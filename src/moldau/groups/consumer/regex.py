"""Subscriptions by regular expression: which topics an expression matches, kept up to date in records of the group.

Expressions come from strangers, so RE2 matches them: linear, with bounded memory. It runs on the coordinator's own
time, a turn at a time: what a turn does not reach is left for the next, which a timer starts. As in Kafka an
expression has to match a topic's whole name, and internal topics are topics like others.
"""

from itertools import islice
from typing import Final

import re2

from moldau.base.errors import Refusal, WireError
from moldau.groups.consumer.builder import REGEX, Draft
from moldau.groups.consumer.group import ConsumerGroup, Resolved, Scan
from moldau.groups.env import Env, Topics

PATTERN_BYTES: Final = 16_384  # the longest expression
UNICODE_CLASSES: Final = 32  # of an expression: each takes a tenth of a millisecond to compile
PATTERN_MEMORY: Final = 256 * 1024  # of a compiled expression
STEPS: Final = 10_000_000  # of RE2's machine in a turn, at worst: some ten milliseconds
STEPS_PER_TOPIC: Final = 2_000  # what a call costs whatever the expression
REFRESH_MS: Final = 10_000  # new topics are looked at together, this long after the last look


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = PATTERN_MEMORY
    return options


def check(regex: str) -> Refusal | None:
    """Why an expression cannot be used, or None."""
    fault = _fault(regex)
    if fault is None:
        return None
    message = f"SubscribedTopicRegex `{regex[:200]}` is not a valid regular expression: {fault}."
    return Refusal(WireError.INVALID_REGULAR_EXPRESSION, message)


def _fault(regex: str) -> str | None:
    if len(regex.encode()) > PATTERN_BYTES:
        return f"it is longer than {PATTERN_BYTES} bytes"
    if regex.count("\\p") + regex.count("\\P") > UNICODE_CLASSES:
        return f"it has more than {UNICODE_CLASSES} Unicode classes"
    try:
        re2.compile(regex.encode(), _options())
    except re2.error as error:
        return bytes(error.args[0]).decode(errors="replace")
    return None


def resolve(draft: Draft, env: Env) -> bool:
    """A turn: match expressions that are new or due. True if one matches other topics than it did."""
    changed, steps = False, STEPS
    while steps > 0 and (regex := _next_due(draft.group, env)) is not None:
        scan, steps = _further(_scan_of(draft.group, regex, env), env.topics, steps)
        if scan.looked_at < len(env.topics.by_name):
            draft.scan(scan)
            break
        before = draft.group.regexes.get(regex)
        draft.write_regex(regex, Resolved(scan.matched, scan.version, scan.at))
        draft.scan(None)
        changed = changed or scan.matched != (before.topics if before else frozenset())
    draft.set_timer(REGEX, None, next_turn(draft.group, env))
    return changed


def next_turn(group: ConsumerGroup, env: Env) -> int | None:
    """When an expression is due; None where there is none."""
    times = [_due(group, regex, env) for regex in group.subscribed_regexes]
    return max(min(times), env.now) if times else None


def drop_unused(draft: Draft, regex: str) -> None:
    """A member does not use the expression any more: forget it if it was the last one."""
    if regex in draft.group.regexes and regex not in draft.group.subscribed_regexes:
        draft.delete_regex(regex)


def _due(group: ConsumerGroup, regex: str, env: Env) -> int:
    resolved = group.regexes.get(regex)
    if resolved is None or resolved.at > env.now:  # or that of a coordinator whose clock was ahead
        return env.now
    if resolved.version != env.topics.version:
        return resolved.at + REFRESH_MS
    return resolved.at + env.config.consumer_regex_refresh_interval_ms


def _next_due(group: ConsumerGroup, env: Env) -> str | None:
    """The one that is being looked at, or else the one that has waited longest."""
    due = {regex: _due(group, regex, env) for regex in group.subscribed_regexes}
    if group.scan is not None and due.get(group.scan.regex, env.now + 1) <= env.now:
        return group.scan.regex
    first = min(due, key=lambda regex: (due[regex], regex), default=None)
    return first if first is not None and due[first] <= env.now else None


def _scan_of(group: ConsumerGroup, regex: str, env: Env) -> Scan:
    scan = group.scan
    if scan is not None and scan.regex == regex and scan.version == env.topics.version:
        return scan
    return Scan(regex, env.topics.version, env.now, frozenset(), 0)


def _further(scan: Scan, topics: Topics, steps: int) -> tuple[Scan, int]:
    """The scan after as many topics as the steps allow, at least one; and the steps that are left."""
    if _fault(scan.regex) is not None:  # of a broker with other limits
        return scan._replace(looked_at=len(topics.by_name)), steps - STEPS_PER_TOPIC
    pattern = re2.compile(scan.regex.encode(), _options())
    matched, looked_at = set(scan.matched), scan.looked_at
    for name in islice(topics.by_name, looked_at, None):
        if steps <= 0:
            break
        steps -= STEPS_PER_TOPIC + pattern.programsize * len(name)
        looked_at += 1
        if pattern.fullmatch(name.encode()) is not None:
            matched.add(name)
    return scan._replace(matched=frozenset(matched), looked_at=looked_at), steps
