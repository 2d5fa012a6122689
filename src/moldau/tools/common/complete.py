"""Shell completion of names: topics, groups, transactional ids. Offers nothing when no broker answers."""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from moldau.client.admin.errors import AdminError

if TYPE_CHECKING:
    from moldau.client.admin.target import Target

TIMEOUT_S = 1.0


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin with the typed text."""
    return _complete(ctx, incomplete, _topic_names)


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Consumer groups that begin with the typed text."""
    return _complete(ctx, incomplete, _group_names)


def complete_transactional_id(ctx: typer.Context, incomplete: str) -> list[str]:
    """Transactional ids that begin with the typed text."""
    return _complete(ctx, incomplete, _transactional_ids)


def _topic_names(target: "Target") -> Iterable[str]:
    from moldau.client.admin.clients import Admin

    return Admin(target).client.list_topics(timeout=TIMEOUT_S).topics


def _group_names(target: "Target") -> Iterable[str]:
    from moldau.client.admin.clients import Admin

    admin = Admin(target)  # kept in a name: librdkafka closes a client without references
    found = admin.client.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S).valid
    return [group.group_id for group in found or ()]


def _transactional_ids(target: "Target") -> Iterable[str]:
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.transactions import Filters, list_transactions

    with open_cluster(target) as cluster:
        return [row.transactional_id for _, row in list_transactions(cluster, Filters())]


def _complete(ctx: typer.Context, incomplete: str, ask: Callable[["Target"], Iterable[str]]) -> list[str]:
    from confluent_kafka import KafkaException

    from moldau.client.admin.target import Target
    from moldau.client.settings import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP

    typed = ctx.params.get("bootstrap") or ctx.find_root().params.get("bootstrap")
    target = Target(typed or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP)
    try:
        names = ask(target)
    except (AdminError, KafkaException, TimeoutError):
        return []
    return [name for name in sorted(names) if name.startswith(incomplete)]
