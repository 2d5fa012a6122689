"""Points in time and lengths of time as people write them: `2026-01-31T12:00:00Z`, `10m ago`, `15m`, `PT15M`. Pure."""

import re
from datetime import datetime

SPAN_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SHORT_SPAN = re.compile(r"(\d+)(ms|s|m|h|d)", re.ASCII)
ISO_SPAN = re.compile(
    r"P(?=.)(?:(?P<d>\d+)D)?(?:T(?=.)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d{1,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
LONGEST_SPAN_MS = 2**53  # a float holds it exactly
AGO = " ago"


def read_time(text: str) -> int:
    """Milliseconds since 1970 from a number of them or from an ISO 8601 time, local unless it names a zone."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is neither milliseconds nor an ISO 8601 time such as 2026-01-31T12:00:00Z"
        ) from None


def read_moment(text: str, now_ms: int) -> int:
    """As `read_time`, or an age such as `10m ago`; never before 1970."""
    plain = text.strip()
    try:
        if plain.lower().endswith(AGO):
            found = now_ms - read_span(plain[: -len(AGO)].replace(" ", ""))
        else:
            found = read_time(plain)
    except ValueError:
        found = -1
    if found < 0:
        raise ValueError(
            f"{text!r} is neither an ISO 8601 time such as 2026-01-31T12:00:00Z, nor an age such as '10m ago', "
            "nor milliseconds since 1970"
        )
    return found


def read_span(text: str) -> int:
    """Milliseconds from a length of time: `15m`, or ISO 8601's `PT15M` as Kafka's tools take it."""
    short = SHORT_SPAN.fullmatch(text)
    iso = ISO_SPAN.fullmatch(text)
    if short:
        total = float(short[1]) * SPAN_UNITS_MS[short[2]]
    elif iso:
        total = sum(float(number) * SPAN_UNITS_MS[unit] for unit, number in iso.groupdict().items() if number)
    else:
        raise ValueError(f"{text!r} is not a length of time such as 90s, 15m, 2h, 1d or P1DT2H30M")
    if total > LONGEST_SPAN_MS:
        raise ValueError(f"{text!r} is too long a time")
    return round(total)


def show_span(milliseconds: int) -> str:
    """The same time for `read_span`, in the largest unit that fits: `30d`."""
    units = [(unit, size) for unit, size in SPAN_UNITS_MS.items() if milliseconds % size == 0]
    unit, size = max(units, key=lambda each: each[1])
    return f"{milliseconds // size}{unit}"
