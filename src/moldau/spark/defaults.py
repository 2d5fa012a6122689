"""Defaults of a session for the options of its queries: bootstrap servers, and where streams start.

They travel as environment variables, because Spark does not pass a session's settings to the processes that create
readers and writers. In the session's own process they are kept here.
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

_session: dict[str, str] = {}  # of this process; the processes that Spark starts have variables


def set_defaults(variables: Mapping[str, str], environment: dict[str, str]) -> None:
    """Set the defaults of the latest session, here and in the environment of processes that it starts."""
    for variable in VARIABLE_OF.values():
        environment.pop(variable, None)
    environment.update(variables)
    _session.clear()
    _session.update(variables)


def with_defaults(
    options: Mapping[str, str], *, stream: bool = False, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The options, completed with the session's defaults. The start applies to streams only."""
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
            if STRATEGY.lower() not in given:  # no record since then: start at the end
                found[STRATEGY] = "latest"
        else:
            found["startingOffsets"] = start
    return found
