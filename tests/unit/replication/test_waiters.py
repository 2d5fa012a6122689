"""Fetches that wait: each fires once, for one reason, and leaves nothing behind."""

from moldau.replication.waiters import FetchWaiter
from support.net.loops import ManualLoop, on_both_loops, run, run_by_hand, turns

LONG = 1_000_000


class Watched:
    def __init__(self) -> None:
        self.waiters: set[FetchWaiter] = set()


@on_both_loops
def test_enough_bytes_fire_it_once_at_the_end_of_the_turn(loop_kind: str) -> None:
    async def main() -> None:
        fired: list[int] = []
        first, second = Watched(), Watched()
        waiter = FetchWaiter([first, second], 100, LONG, lambda: fired.append(1))
        assert waiter in first.waiters
        waiter.grown(60)
        await turns()
        assert fired == []
        waiter.grown(40)
        waiter.grown(1000)
        assert fired == []  # one request may feed several partitions: the answer has them all
        await turns()
        waiter.grown(1000)
        waiter.fire()
        waiter.fire_soon()
        await turns()
        assert fired == [1]
        assert first.waiters == second.waiters == set()

    run(loop_kind, main())


def test_time_fires_it() -> None:
    async def main(loop: ManualLoop) -> None:
        fired: list[int] = []
        watched = Watched()
        FetchWaiter([watched], 100, 5, lambda: fired.append(1))
        loop.pass_time(0.004)
        await turns()
        assert fired == []
        loop.pass_time(0.002)
        await turns()
        assert fired == [1]
        assert watched.waiters == set()
        loop.pass_time(1)
        await turns()
        assert fired == [1]

    run_by_hand(main)


@on_both_loops
def test_a_change_of_its_partition_fires_it(loop_kind: str) -> None:
    async def main() -> None:
        fired: list[int] = []
        watched = Watched()
        waiter = FetchWaiter([watched], 100, LONG, lambda: fired.append(1))
        waiter.fire_soon()
        waiter.fire_soon()
        await turns()
        assert fired == [1]

    run(loop_kind, main())


def test_a_cancelled_one_never_fires() -> None:
    async def main(loop: ManualLoop) -> None:
        fired: list[int] = []
        watched = Watched()
        waiter = FetchWaiter([watched], 100, 5, lambda: fired.append(1))
        late = FetchWaiter([watched], 100, LONG, lambda: fired.append(2))
        late.grown(100)  # about to fire when its client leaves
        late.cancel()
        waiter.cancel()
        waiter.cancel()
        waiter.grown(1000)
        waiter.fire()
        loop.pass_time(1)
        await turns()
        assert fired == []
        assert watched.waiters == set()

    run_by_hand(main)


@on_both_loops
def test_the_action_may_wait_again_on_the_same_partitions(loop_kind: str) -> None:
    async def main() -> None:
        fired: list[int] = []
        watched = Watched()

        def again() -> None:
            fired.append(1)
            if len(fired) < 3:
                FetchWaiter([watched], 1, LONG, again)

        FetchWaiter([watched], 1, LONG, again)
        for _ in range(5):
            for waiter in watched.waiters:
                waiter.grown(1)
            await turns()
        assert fired == [1, 1, 1]

    run(loop_kind, main())
