"""The answer to a fetch from its plan: at once, or when enough bytes have come or its time is over."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from moldau.broker.call import Call
from moldau.broker.context import DataContext
from moldau.broker.fetch_plan import Plan
from moldau.broker.fetch_sessions import FetchContext
from moldau.broker.leaders import endpoints
from moldau.net.reply import BadRequest, Parked, Parts
from moldau.replication.delayed_fetch import DelayedFetch, Watched
from moldau.wire.hot.fetch import FETCH_BY_ID, FetchBody, pack_fetch

logger: Final = logging.getLogger("moldau.broker")


def respond(ctx: DataContext, fetch: FetchContext, call: Call, plan: Plan) -> Parts:
    answers = fetch.answer(plan.results)
    throttle_ms = 0
    if call.member is not None:
        call.member.fetched(plan.results, call.meter, by_id=call.version >= FETCH_BY_ID)
    if call.meter is not None:
        call.meter.fetched(plan.size)
        throttle_ms = call.meter.throttle_ms(fetch=True)
    if not plan.ready:
        return pack_fetch(call.version, call.correlation_id, 0, fetch.session_id, answers, throttle_ms=throttle_ms)
    for partition, problem in plan.unreadable:
        logger.error("Reading %s failed: %s", partition.name, problem)
        partition.cannot_read(problem)
    leaders = endpoints(ctx, call.session.listener, (result.leader for _, result in plan.results))
    session_id = fetch.session_id
    return pack_fetch(call.version, call.correlation_id, 0, session_id, answers, leaders, throttle_ms=throttle_ms)


def delay(
    watched: Sequence[Watched],
    ask: FetchBody,
    missing: int,
    answer: Callable[[], Parts],
    *,
    read_committed: bool = False,
    follower: bool = False,
) -> tuple[Parked, DelayedFetch]:
    """Answer when the watched partitions have got so many missing bytes, or after max_wait_ms."""

    def fire() -> None:
        try:
            parked.resolve(answer())
        except Exception:
            logger.exception("A delayed fetch failed; closing its connection")
            parked.resolve(BadRequest("an internal error"))

    delayed = DelayedFetch(
        list(watched), missing, ask.max_wait_ms, fire, read_committed=read_committed, follower=follower
    )
    parked = Parked(delayed.cancel)
    return parked, delayed
