"""How long a dead broker is listed, and which are not."""

import asyncio
from dataclasses import replace

import pytest

from moldau.broker.departed import Departed
from moldau.metadata.image import Broker, ClusterImage


def image(*brokers: Broker) -> ClusterImage:
    return replace(ClusterImage(), brokers={broker.id: broker for broker in brokers})


def test_who_died_is_listed_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        departed = Departed()
        one, two, leaving = Broker(1, {}), Broker(2, {}), Broker(3, {}, leaving=True)
        assert departed.listed == ()
        departed.follow(image(one, two, leaving), image(one))
        assert departed.listed == (two,), "and not who has shut down in order"
        departed.follow(image(one), image(one, replace(two, epoch=7)))
        assert departed.listed == (), "it is there again"
        departed.follow(image(one, two), image(one))
        assert departed.listed == (two,)
        monkeypatch.setattr("moldau.broker.departed.LISTED_S", 0.0)
        assert departed.listed == ()

    asyncio.run(main())
