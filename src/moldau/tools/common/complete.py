"""Shell completion of names: topics, groups, transactional ids. Offers nothing when no broker answers."""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from moldau.tools.common.failure import CommandError

if TYPE_CHECKING:
    from moldau.tools.connect import Target

PATIENCE_S = 1.0


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics whose names begin with what was typed."""
    return _complete(ctx, incomplete, _topic_names)


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """The consumer groups whose names begin with what was typed."""
    return _complete(ctx, incomplete, _group_names)


def complete_transactional_id(ctx: typer.Context, incomplete: str) -> list[str]:
    """The transactional ids that begin with what was typed."""
    return _complete(ctx, incomplete, _transactional_ids)


def _topic_names(target: "Target") -> Iterable[str]:
    from moldau.tools.connect import build_admin

    return build_admin(target).list_topics(timeout=PATIENCE_S).topics


def _group_names(target: "Target") -> Iterable[str]:
    from moldau.tools.connect import build_admin

    admin = build_admin(target)  # by a name: an admin that nobody refers to is closed, and answers no more
    found = admin.list_consumer_groups(request_timeout=PATIENCE_S).result(PATIENCE_S).valid
    return [group.group_id for group in found or ()]


def _transactional_ids(target: "Target") -> Iterable[str]:
    from moldau.tools.requests import open_cluster
    from moldau.tools.txn_admin import Filters, list_transactions

    with open_cluster(target) as cluster:
        return [row.transactional_id for _, row in list_transactions(cluster, Filters())]


def _complete(ctx: typer.Context, incomplete: str, ask: Callable[["Target"], Iterable[str]]) -> list[str]:
    from confluent_kafka import KafkaException

    from moldau.tools.common.options import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP
    from moldau.tools.connect import Target

    typed = ctx.params.get("bootstrap") or ctx.find_root().params.get("bootstrap")
    target = Target(typed or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP)
    try:
        names = ask(target)
    except (CommandError, KafkaException, TimeoutError):
        return []
    return [name for name in sorted(names) if name.startswith(incomplete)]
