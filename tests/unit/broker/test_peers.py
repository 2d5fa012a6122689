"""Which connection leads to which broker, and where it goes when the image changes."""

import asyncio
from dataclasses import replace

import pytest

from moldau.broker.peers import Peers
from moldau.metadata.image import Broker, ClusterImage, Endpoint
from moldau.net.peer import Address, PeerLost
from support.brokers.processes import free_port
from support.net.loops import until


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


def test_every_connection_is_opened_in_the_given_way() -> None:
    async def main() -> None:
        opened: list[Address] = []

        async def connect(_: object, address: Address) -> asyncio.Transport:
            opened.append(address)
            raise ConnectionRefusedError

        image = replace(ClusterImage(), brokers={1: Broker(1, {"INTERNAL": Endpoint("inside", 2)})})
        peers = Peers(lambda: image, "INTERNAL", connect=connect)
        for purpose in ("control", "fetch"):
            with pytest.raises(PeerLost):
                await peers.to(1, purpose).connect()
        assert opened == [Address("inside", 2)] * 2
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


def test_a_broker_that_ends_its_connections_may_be_dead_until_it_has_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        writers: list[asyncio.StreamWriter] = []
        address = ("127.0.0.1", free_port())

        async def serve() -> asyncio.Server:
            return await asyncio.start_server(lambda _, writer: writers.append(writer), *address)

        broker = Broker(1, {"INTERNAL": Endpoint(*address)}, epoch=5)
        image = replace(ClusterImage(), brokers={1: broker})
        peers = Peers(lambda: image, "INTERNAL")
        server = await serve()
        await peers.to(1).connect()
        await peers.to(1, "fetch").connect()
        assert peers.suspected == frozenset()
        server.close()
        await until(lambda: len(writers) == 2)
        for each in writers:
            each.transport.abort()
        await until(lambda: not peers.to(1).connected and not peers.to(1, "fetch").connected)
        assert peers.suspected == {1}
        image = replace(image, brokers={1: replace(broker, epoch=6)})
        assert peers.suspected == frozenset(), "it has registered again"
        server = await serve()
        await peers.to(1, "fetch").connect()
        assert peers.suspected == frozenset(), "it is there"
        server.close()
        await until(lambda: len(writers) == 3)
        writers[2].transport.abort()
        await until(lambda: not peers.to(1, "fetch").connected)
        assert peers.suspected == {1}
        monkeypatch.setattr("moldau.broker.peers.SUSPECT_S", 0.0)
        assert peers.suspected == frozenset(), "the image says what became of it"
        await peers.stop()

    asyncio.run(main())
