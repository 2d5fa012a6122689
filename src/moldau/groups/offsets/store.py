"""Committed offsets: what is stored for every group and partition, and what waits for a transaction to end.

The store keeps values as they lie in the log and reads them when somebody asks: a start goes through every commit that
is in the log, and a million of them should not take long, nor much memory. Who may commit, fetch, delete, and what
expires is decided in `commit`, `fetch` and `expiration`; the bytes are those of `packed`.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from moldau.groups.offsets.packed import TOPIC_END, Place, split_key

NOTHING: Mapping[Place, bytes] = {}


class Offsets:
    """By group, then by place (a topic's partition). Only `apply` and `end_transaction` change it."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[Place, bytes]] = {}
        self._topics: dict[bytes, int] = {}  # how many offsets there are of each: a topic that goes may have none
        # What open transactions have committed, by producer, in the order of the log. None: overtaken by a later
        # commit that counts already, so the transaction's end brings nothing; until then it is unstable all the same.
        self._pending: dict[str, dict[Place, dict[int, bytes | None]]] = {}
        self._open: dict[int, dict[tuple[str, Place], None]] = {}  # producer id → where it has something pending

    # -- reads

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    def get(self, group_id: str, place: Place) -> bytes | None:
        return self._committed.get(group_id, NOTHING).get(place)

    def committed(self, group_id: str) -> Mapping[Place, bytes]:
        """All that counts for a group."""
        return self._committed.get(group_id, NOTHING)

    def is_pending(self, group_id: str, place: Place) -> bool:
        """Whether an open transaction may still change this offset."""
        return place in self._pending.get(group_id, ())

    def in_transaction(self, group_id: str) -> bool:
        return group_id in self._pending

    def places(self, group_id: str) -> Iterator[Place]:
        """Where a group has something, committed or pending."""
        committed = self.committed(group_id)
        return chain(committed, (place for place in self._pending.get(group_id, ()) if place not in committed))

    def topics(self) -> Iterator[bytes]:
        """The topics that offsets were committed for, as the beginnings of their places."""
        pending = {place[:TOPIC_END] for places in self._pending.values() for place in places}
        return chain(self._topics, pending - self._topics.keys())

    def of_topic(self, topic: bytes) -> Iterator[tuple[str, Place]]:
        """Where there is something of a topic, by group. This looks at everything: topics seldom go."""
        for group_id in dict.fromkeys(chain(self._committed, self._pending)):
            for place in self.places(group_id):
                if place.startswith(topic) and len(place) == len(topic) - TOPIC_END:
                    yield group_id, place

    # -- changes

    def apply(self, key: bytes, value: bytes | None, producer_id: int = -1) -> str:
        """A commit's record, or its tombstone; `producer_id` is that of an open transaction. Returns the group."""
        group_id, place = split_key(key)
        if value is None:
            self._remove(group_id, place)
        elif producer_id < 0:
            places = self._committed.get(group_id)
            if places is not None and place in places:
                places[place] = value  # by far the most
            else:
                self._put(group_id, place, value)
            if self._pending and group_id in self._pending:
                self._overtake(group_id, place, None)
        else:
            waiting = self._pending.setdefault(group_id, {}).setdefault(place, {})
            waiting.pop(producer_id, None)  # the order is that of the log
            waiting[producer_id] = value
            self._open.setdefault(producer_id, {})[group_id, place] = None
        return group_id

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """A producer's pending offsets count from now on, or never did."""
        for group_id, place in self._open.pop(producer_id, ()):
            waiting = self._pending[group_id][place]
            value = waiting[producer_id]
            if commit and value is not None:
                self._put(group_id, place, value)
                self._overtake(group_id, place, producer_id)
            del waiting[producer_id]
            if not waiting:
                self._settle(group_id, place)

    def _put(self, group_id: str, place: Place, value: bytes) -> None:
        places = self._committed.get(group_id)
        if places is None:
            places = self._committed[group_id] = {}
        if place not in places:
            topic = place[:TOPIC_END]
            self._topics[topic] = self._topics.get(topic, 0) + 1
        places[place] = value

    def _overtake(self, group_id: str, place: Place, by: int | None) -> None:
        """A commit counts from now on: those before it in the log never will. None: it is the last one there is."""
        waiting = self._pending[group_id].get(place, {})
        for producer_id in waiting:
            if producer_id == by:
                break
            waiting[producer_id] = None

    def _remove(self, group_id: str, place: Place) -> None:
        places = self._committed.get(group_id)
        if places is not None and places.pop(place, None) is not None:
            topic = place[:TOPIC_END]
            self._topics[topic] -= 1
            if not self._topics[topic]:
                del self._topics[topic]
            if not places:
                del self._committed[group_id]
        for producer_id in self._pending.get(group_id, {}).get(place, ()):
            opened = self._open[producer_id]
            del opened[group_id, place]
            if not opened:
                del self._open[producer_id]
        if self.is_pending(group_id, place):
            self._settle(group_id, place)

    def _settle(self, group_id: str, place: Place) -> None:
        """Nothing is pending here any more."""
        places = self._pending[group_id]
        del places[place]
        if not places:
            del self._pending[group_id]
