"""Shell completion of topic names. Asks the broker briefly, and offers nothing when there is none."""

import os

import typer

from moldau.tools.failure import CommandError

PATIENCE_S = 1.0


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics whose names begin with what was typed."""
    from confluent_kafka import KafkaException

    from moldau.tools.connect import Target, build_admin
    from moldau.tools.options import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP

    typed = ctx.params.get("bootstrap") or ctx.find_root().params.get("bootstrap")
    target = Target(typed or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP)
    try:
        topics = build_admin(target).list_topics(timeout=PATIENCE_S).topics
    except (CommandError, KafkaException):
        return []
    return [name for name in sorted(topics) if name.startswith(incomplete)]
