"""How long a dead broker is listed, and which are not."""

import asyncio
from dataclasses import replace

import pytest

from moldau.broker.recently_dead import RecentlyDead
from moldau.metadata.image import Broker, ClusterImage


def image(*brokers: Broker) -> ClusterImage:
    return replace(ClusterImage(), brokers={broker.id: broker for broker in brokers})


def test_a_dead_broker_is_listed_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        dead = RecentlyDead()
        one, two, leaving = Broker(1, {}), Broker(2, {}), Broker(3, {}, leaving=True)
        assert dead.listed == ()
        dead.follow(image(one, two, leaving), image(one))
        assert dead.listed == (two,), "and not a broker that was shut down"
        dead.follow(image(one), image(one, replace(two, epoch=7)))
        assert dead.listed == (), "it is there again"
        dead.follow(image(one, two), image(one))
        assert dead.listed == (two,)
        monkeypatch.setattr("moldau.broker.recently_dead.LISTED_S", 0.0)
        assert dead.listed == ()

    asyncio.run(main())
