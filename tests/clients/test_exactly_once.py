"""Exactly once: a copier with transactions, killed with its broker again and again, copies each record once, in order.

The run of `make test` is a small one; `make exactly-once` copies 200,000 records with ten kills of each.
"""

import os
import time

from support.brokers.processes import StartBroker
from support.transactions.copying import Plan, copy_under_fire

SMALL = Plan(records=30_000, batch=750, broker_kills=3, copier_kills=3)
FULL = Plan(records=200_000, batch=750, broker_kills=10, copier_kills=10)


def test_every_record_is_copied_once_and_in_order(start_broker: StartBroker) -> None:
    plan = FULL if os.environ.get("MOLDAU_FULL") else SMALL
    seed = int(os.environ.get("MOLDAU_SEED", time.time_ns() % 1_000_000))
    own = start_broker(group_min_session_timeout_ms=500, group_initial_rebalance_delay_ms=0)
    outcome = copy_under_fire(own, plan, seed)
    print(
        f"{plan}, seed {seed}: {outcome.seconds:.1f} s, {outcome.transactions} transactions told as committed, "
        f"{outcome.aborted} as aborted, {outcome.stored - plan.records} records of aborted ones in the log"
    )
    assert [len(part) for part in outcome.copied] == [len(part) for part in outcome.expected], outcome.words
    assert outcome.copied == outcome.expected
