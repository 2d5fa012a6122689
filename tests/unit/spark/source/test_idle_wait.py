"""How long a stream's reader waits for records inside a call of Spark."""

from moldau.spark.source.idle_wait import AWAY_S, FIRST_S, LONGEST_S, IdleWait

PAUSE_S = 0.01  # of Spark, between two calls that found nothing


def idle(wait: IdleWait, now: float, calls: int, away_s: float = PAUSE_S) -> tuple[list[float], float]:
    """Waits of calls that all find nothing, each after Spark was away for so long; and the time after them."""
    waits = []
    for _ in range(calls):
        waits.append(wait.seconds(now))
        now += waits[-1]
        wait.returns(now, empty=True)
        now += away_s
    return waits, now


def test_an_idle_query_waits_longer_up_to_a_limit() -> None:
    waits, _ = idle(IdleWait(), 0.0, 8)
    assert waits[:3] == [0.0, FIRST_S, 2 * FIRST_S]
    assert waits[-1] == LONGEST_S


def test_a_query_with_records_does_not_wait() -> None:
    wait = IdleWait()
    _, now = idle(wait, 0.0, 8)
    wait.seconds(now)
    wait.returns(now, empty=False)
    assert wait.seconds(now + 1) == 0.0


def test_records_of_other_sources_are_not_held_up_for_long() -> None:
    wait = IdleWait()
    _, now = idle(wait, 0.0, 8)
    waits, _ = idle(wait, now + 1, 3, away_s=2 * AWAY_S)
    assert waits == [FIRST_S, FIRST_S, FIRST_S]
