"""Fetches that wait: each fires once, for one reason, and leaves nothing behind."""

from moldau.replication.delayed_fetch import DelayedFetch
from support.net.loops import ManualLoop, on_both_loops, run, run_by_hand, turns

LONG = 1_000_000


class Watched:
    def __init__(self) -> None:
        self.delayed_fetches: set[DelayedFetch] = set()


@on_both_loops
def test_enough_bytes_fire_it_once_at_the_end_of_the_turn(loop_kind: str) -> None:
    async def main() -> None:
        fired: list[int] = []
        first, second = Watched(), Watched()
        delayed = DelayedFetch([first, second], 100, LONG, lambda: fired.append(1))
        assert delayed in first.delayed_fetches
        delayed.grown(60)
        await turns()
        assert fired == []
        delayed.grown(40)
        delayed.grown(1000)
        assert fired == []  # one request may feed several partitions: the answer has them all
        await turns()
        delayed.grown(1000)
        delayed.fire()
        delayed.fire_soon()
        await turns()
        assert fired == [1]
        assert first.delayed_fetches == second.delayed_fetches == set()

    run(loop_kind, main())


def test_time_fires_it() -> None:
    async def main(loop: ManualLoop) -> None:
        fired: list[int] = []
        watched = Watched()
        DelayedFetch([watched], 100, 5, lambda: fired.append(1))
        loop.pass_time(0.004)
        await turns()
        assert fired == []
        loop.pass_time(0.002)
        await turns()
        assert fired == [1]
        assert watched.delayed_fetches == set()
        loop.pass_time(1)
        await turns()
        assert fired == [1]

    run_by_hand(main)


@on_both_loops
def test_a_change_of_its_partition_fires_it(loop_kind: str) -> None:
    async def main() -> None:
        fired: list[int] = []
        watched = Watched()
        delayed = DelayedFetch([watched], 100, LONG, lambda: fired.append(1))
        delayed.fire_soon()
        delayed.fire_soon()
        await turns()
        assert fired == [1]

    run(loop_kind, main())


def test_a_cancelled_one_never_fires() -> None:
    async def main(loop: ManualLoop) -> None:
        fired: list[int] = []
        watched = Watched()
        delayed = DelayedFetch([watched], 100, 5, lambda: fired.append(1))
        late = DelayedFetch([watched], 100, LONG, lambda: fired.append(2))
        late.grown(100)  # about to fire when its client leaves
        late.cancel()
        delayed.cancel()
        delayed.cancel()
        delayed.grown(1000)
        delayed.fire()
        loop.pass_time(1)
        await turns()
        assert fired == []
        assert watched.delayed_fetches == set()

    run_by_hand(main)


@on_both_loops
def test_the_action_may_wait_again_on_the_same_partitions(loop_kind: str) -> None:
    async def main() -> None:
        fired: list[int] = []
        watched = Watched()

        def again() -> None:
            fired.append(1)
            if len(fired) < 3:
                DelayedFetch([watched], 1, LONG, again)

        DelayedFetch([watched], 1, LONG, again)
        for _ in range(5):
            for delayed in watched.delayed_fetches:
                delayed.grown(1)
            await turns()
        assert fired == [1, 1, 1]

    run(loop_kind, main())
