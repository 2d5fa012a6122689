"""Encoded Metadata responses, kept until topics or brokers change.

Clients request the same topics over and over. With thousands of partitions a response takes milliseconds to build,
which other requests would wait for; a cached one costs a look-up.
"""

from collections.abc import Hashable

from moldau.metadata.image import ClusterImage

CACHED_AT_MOST = 64  # responses


class MetadataCache:
    def __init__(self) -> None:
        self._image = ClusterImage()
        self._bodies: dict[Hashable, bytes] = {}

    def get(self, image: ClusterImage, key: Hashable) -> bytes | None:
        if image.topics is not self._image.topics or image.brokers is not self._image.brokers:
            self._bodies.clear()
        self._image = image
        return self._bodies.get(key)

    def put(self, key: Hashable, body: bytes) -> None:
        """Keep the response for the key and image of the last `get`."""
        if len(self._bodies) >= CACHED_AT_MOST:
            del self._bodies[next(iter(self._bodies))]
        self._bodies[key] = body
