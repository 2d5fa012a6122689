"""Options of `format("moldau")` that a session has for all its queries; what a query sets itself comes first.

They travel as environment variables, because that is what reaches the processes in which Spark makes readers and
writers: a session's settings do not. In the session's own process they are kept here.
"""

import os
from collections.abc import Mapping

BOOTSTRAP_VARIABLE = "MOLDAU_BOOTSTRAP"
START_VARIABLE = "MOLDAU_START"  # earliest, latest, or milliseconds since 1970
BOOTSTRAP_SETTING = "moldau.bootstrap"
START_SETTING = "moldau.start"
VARIABLE_OF = {BOOTSTRAP_SETTING: BOOTSTRAP_VARIABLE, START_SETTING: START_VARIABLE}
BOOTSTRAP = "kafka.bootstrap.servers"
STARTS = ("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets")
STRATEGY = "startingOffsetsByTimestampStrategy"

_session: dict[str, str] = {}  # of this process; those that Spark starts have variables instead


def set_defaults(variables: Mapping[str, str], environment: dict[str, str]) -> None:
    """What the newest session of this process wants, here and for the processes that get this environment."""
    for variable in VARIABLE_OF.values():
        environment.pop(variable, None)
    environment.update(variables)
    _session.clear()
    _session.update(variables)


def with_defaults(
    options: Mapping[str, str], *, stream: bool = False, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The options, and what the session says where they say nothing. Only streams start where the session says."""
    environment = {**os.environ, **_session} if environment is None else environment
    given = {name.lower() for name in options}
    found = dict(options)
    bootstrap = environment.get(BOOTSTRAP_VARIABLE)
    if bootstrap and BOOTSTRAP not in given:
        found[BOOTSTRAP] = bootstrap
    start = environment.get(START_VARIABLE)
    if stream and start and not given.intersection(STARTS):
        if start.isdecimal():
            found["startingTimestamp"] = start
            if STRATEGY.lower() not in given:  # nothing came since then: begin with what comes
                found[STRATEGY] = "latest"
        else:
            found["startingOffsets"] = start
    return found
