"""Options for limits and roles, shared by `moldau org`, `moldau product` and `moldau user create`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated

import typer

from moldau.base.times import read_span, show_span
from moldau.security.organisations import ALL_PRODUCTS, Limits, Role, plain_limits
from moldau.tools.common.failure import misused
from moldau.tools.common.formats import read_size, show_size

NONE = "none"  # removes a limit

QuotaIn = Annotated[str | None, typer.Option("--quota-in", metavar="RATE", help="Bytes produced per second: 10MB/s.")]
QuotaOut = Annotated[str | None, typer.Option("--quota-out", metavar="RATE", help="Bytes fetched per second.")]
RetentionMax = Annotated[str | None, typer.Option("--retention-max", metavar="SPAN", help="Longest retention: 30d.")]
PartitionsMax = Annotated[str | None, typer.Option("--partitions-max", metavar="N", help="Most partitions.")]
BytesMax = Annotated[str | None, typer.Option("--bytes-max", metavar="SIZE", help="Most bytes stored: 100GB.")]
ConnectionsMax = Annotated[
    str | None, typer.Option("--connections-max", metavar="N", help="Most connections to each broker.")
]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="[PRODUCT:]ROLE", help="reader, writer or admin, of a product or of all."),
]


def limit_texts(
    quota_in: str | None,
    quota_out: str | None,
    retention_max: str | None,
    partitions_max: str | None,
    bytes_max: str | None,
    connections_max: str | None = None,
) -> dict[str, str | None]:
    """The options by the names of the fields of `Limits`; None for one that was not given."""
    return {
        "bytes_in": quota_in,
        "bytes_out": quota_out,
        "retention_ms": retention_max,
        "partitions": partitions_max,
        "bytes_stored": bytes_max,
        "connections": connections_max,
    }


def read_limits(before: Limits, texts: Mapping[str, str | None]) -> Limits:
    """The limits with those that options name, by the names of fields; `none` removes one."""
    changes = {name: _read(name, text) for name, text in texts.items() if text is not None}
    return replace(before, **changes)


def _read(name: str, text: str) -> int | None:
    option, read, example = _OPTIONS[name]
    if text == NONE:
        return None
    try:
        return read(text)
    except ValueError:
        raise misused(f"{option} {text!r} is not a value such as {example}, nor {NONE!r}") from None


def _rate(text: str) -> int:
    return read_size(text.removesuffix("/s"))


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


_OPTIONS: Mapping[str, tuple[str, Callable[[str], int], str]] = {
    "bytes_in": ("--quota-in", _rate, "10MB/s"),
    "bytes_out": ("--quota-out", _rate, "10MB/s"),
    "retention_ms": ("--retention-max", read_span, "30d"),
    "partitions": ("--partitions-max", _count, "200"),
    "bytes_stored": ("--bytes-max", read_size, "100GB"),
    "connections": ("--connections-max", _count, "500"),
}
_SHOWN: Mapping[str, Callable[[int], str]] = {
    "bytes_in": lambda rate: f"{show_size(rate)}/s",
    "bytes_out": lambda rate: f"{show_size(rate)}/s",
    "retention_ms": show_span,
    "bytes_stored": show_size,
}


def show_limits(limits: Limits) -> str:
    """As options take them: `partitions-max 200, quota-in 10MB/s`; or a dash."""
    shown = (
        f"{_OPTIONS[name][0].removeprefix('--')} {_SHOWN.get(name, str)(value)}"
        for name, value in plain_limits(limits).items()
    )
    return ", ".join(shown) or "-"


def read_roles(texts: list[str] | None, default: Role | None = None) -> dict[str, Role]:
    """Roles by product; `writer` alone is for all products."""
    if not texts:
        if default is None:
            raise misused("no role was given", remedy="Add --role reader, or --role PRODUCT:writer")
        return {ALL_PRODUCTS: default}
    found: dict[str, Role] = {}
    for text in texts:
        product, colon, name = text.rpartition(":")
        try:
            if colon and not product:
                raise ValueError(text)
            found[product if colon else ALL_PRODUCTS] = Role(name)
        except ValueError:
            choices = ", ".join(role.value for role in Role)
            raise misused(f"--role {text!r} is not [PRODUCT:]ROLE", remedy=f"Roles are {choices}") from None
    return found


def show_roles(roles: Mapping[str, Role]) -> str:
    """`writer of shop, reader of all products`."""
    return ", ".join(
        f"{role.value} of {'all products' if product == ALL_PRODUCTS else product}" for product, role in roles.items()
    )
