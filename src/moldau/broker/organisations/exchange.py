"""What other brokers store of organisations, asked for while a limit depends on it."""

import asyncio
from collections.abc import Callable
from typing import Final

from moldau.base.errors import WireError
from moldau.broker.organisations.directory import Directory
from moldau.broker.organisations.storage import Stored
from moldau.broker.peers import Peers
from moldau.metadata.image import ClusterImage
from moldau.net.peer import PeerLost
from moldau.wire.messages.describe_organisations import DescribeOrganisationsRequest, DescribeOrganisationsResponse

EXCHANGE_MS: Final = 5_000
VERSION: Final = 0


class StorageExchange:
    def __init__(self, directory: Directory, peers: Peers, image: Callable[[], ClusterImage], node_id: int) -> None:
        self._directory = directory
        self._peers = peers
        self._image = image
        self._node_id = node_id

    async def refresh(self) -> None:
        limited = [each.name for each in self._directory.organisations.values() if each.limits_storage]
        others = [broker for broker in self._image().brokers if broker != self._node_id] if limited else []
        answers = await asyncio.gather(*(self._ask(broker, tuple(limited)) for broker in others))
        known = self._directory.storage.elsewhere
        self._directory.storage.elsewhere = {
            broker: known.get(broker, {}) if answer is None else answer
            for broker, answer in zip(others, answers, strict=True)
        }

    async def _ask(self, broker: int, names: tuple[str, ...]) -> Stored | None:
        """None: the broker did not answer, so what it told last counts."""
        try:
            answer = await self._peers.to(broker).ask(DescribeOrganisationsRequest(names=names), VERSION)
        except PeerLost:
            return None
        assert isinstance(answer, DescribeOrganisationsResponse)
        return {
            (each.name, usage.product): usage.bytes_stored
            for each in answer.organisations
            if each.error_code == WireError.NONE
            for usage in each.usage
        }
