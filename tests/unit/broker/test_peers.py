"""Which connection leads to which broker, and where it goes when the image changes."""

import asyncio
from dataclasses import replace

from moldau.broker.peers import Peers
from moldau.metadata.image import Broker, ClusterImage, Endpoint


def test_a_broker_has_one_connection_for_each_purpose() -> None:
    async def main() -> None:
        peers = Peers(ClusterImage, "INTERNAL")
        assert peers.to(1) is peers.to(1)
        assert peers.to(1) is not peers.to(1, "fetch")
        assert peers.to(1) is not peers.to(2)
        kept = peers.to(1)
        await peers.drop(1, "fetch")
        assert peers.to(1) is kept
        await peers.stop()

    asyncio.run(main())


def test_the_address_is_that_of_the_brokers_own_listener_as_the_image_has_it() -> None:
    async def main() -> None:
        image = ClusterImage()
        peers = Peers(lambda: image, "INTERNAL")
        assert peers._address(1) is None
        endpoints = {"CLIENT": Endpoint("public", 1), "INTERNAL": Endpoint("inside", 2)}
        image = replace(image, brokers={1: Broker(1, endpoints)})
        assert peers._address(1) == ("inside", 2)
        image = replace(image, brokers={1: Broker(1, {"CLIENT": Endpoint("public", 1)})})
        assert peers._address(1) is None

    asyncio.run(main())
