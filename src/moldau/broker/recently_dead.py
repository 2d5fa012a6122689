"""Recently dead brokers, which Metadata goes on listing until clients have found the new leaders.

librdkafka (2.16) forgets a broker that is no longer listed together with the partitions that it led, even those for
which the same response names another leader: they wait for the next refresh, a second later. If it learns the new
leader first and of the dead broker later, they do not wait.
"""

import asyncio

from moldau.metadata.image import Broker, ClusterImage

LISTED_S = 2.0  # librdkafka refreshes every second while a leader is unreachable
NONE: tuple[Broker, ...] = ()


class RecentlyDead:
    def __init__(self) -> None:
        self._died: dict[int, tuple[float, Broker]] = {}  # when, by the loop's clock

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """Note the brokers that died. After a controlled shutdown others lead already: such a broker is not listed."""
        if old.brokers is new.brokers:
            return
        now = asyncio.get_running_loop().time()
        for broker_id, broker in old.brokers.items():
            if broker_id not in new.brokers and not broker.leaving:
                self._died[broker_id] = (now, broker)
        for broker_id in new.brokers:
            self._died.pop(broker_id, None)

    @property
    def listed(self) -> tuple[Broker, ...]:
        if not self._died:
            return NONE
        latest = asyncio.get_running_loop().time() - LISTED_S
        self._died = {broker_id: died for broker_id, died in self._died.items() if died[0] > latest}
        return tuple(broker for _, broker in self._died.values())
