"""docs/protocol.md, rendered from the tables of APIs and errors. Print it with `python -m moldau.broker.protocol_page`.

The notes on an API are the docstring of the file that serves it.
"""

import sys

from moldau.base.errors import WireError
from moldau.broker.dispatch import Api
from moldau.broker.table import APIS
from moldau.wire.messages.registry import ApiMessages

HEAD = """# Protocol

This page is made from the tables in the code (`python -m moldau.broker.protocol_page > docs/protocol.md`), and a test
keeps it up to date. Moldau speaks Kafka's protocol; clients learn from ApiVersions what is in this table. An API that
is not in it is not supported, and a request for it closes the connection. APIs between brokers are marked, and not in
ApiVersions.
"""

VERSIONS = """## APIs

Flexible versions have compact lengths and tagged fields (KIP-482).

| Key | API | Versions | Flexible from |
|---|---|---|---|
"""

NEEDS = """## Authorization

The operations that a principal needs, and on which resources, where an authorizer is configured
([security.md](security.md)). Without one, every client may call every API.

| API | Needs |
|---|---|
"""

NOTES = """## What is notable

In the words of the files that serve them; numbers before a colon are versions.
"""

ERRORS = """## Errors

A client may send a request again that failed with a retriable error.

| Code | Name | Retriable | Meaning |
|---|---|---|---|
"""


def render() -> str:
    """The whole page."""
    parts = [
        HEAD,
        VERSIONS + "".join(_row(api.messages) for api in APIS),
        NEEDS + "".join(f"| {api.messages.name} | {_needs(api)} |\n" for api in APIS),
        NOTES,
        "".join(f"- {notes}\n" for notes in dict.fromkeys(notes_on(api) for api in APIS)),
        ERRORS + "".join(_error(error) for error in sorted(WireError)),
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def notes_on(api: Api) -> str:
    """The docstring of the file that serves an API, on one line."""
    handler = api.handler or api.hot
    assert handler is not None, f"{api.messages.name} has no handler"
    return " ".join((sys.modules[handler.__module__].__doc__ or "").split())


def served(api: ApiMessages) -> str:
    """Its versions, as files and pages write them."""
    return f"{api.lowest}–{api.highest}" if api.lowest < api.highest else str(api.lowest)


def _row(api: ApiMessages) -> str:
    versions = served(api)
    if api.advertised != api.lowest:
        versions += f" (advertised from {api.advertised})"
    if api.between_brokers:
        versions += " (between brokers)"
    flexible = "never" if api.flexible is None else api.flexible
    return f"| {api.key} | {api.name} | {versions} | {flexible} |\n"


def _needs(api: Api) -> str:
    return ", ".join(map(str, api.needs or ())) or "nothing"


def _error(error: WireError) -> str:
    return f"| {error.value} | {error.name} | {'yes' if error.retriable else 'no'} | {error.doc} |\n"


if __name__ == "__main__":
    print(render(), end="")
