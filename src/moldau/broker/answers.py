"""Encoded metadata answers, kept until topics or brokers change.

Clients ask for the same topics again and again. With thousands of partitions an answer takes milliseconds to make,
which other requests would wait for; kept as bytes, it costs a look-up.
"""

from collections.abc import Hashable

from moldau.metadata.image import ClusterImage

ANSWERS_AT_MOST = 64  # different questions remembered at a time


class Answers:
    def __init__(self) -> None:
        self._image = ClusterImage()
        self._bodies: dict[Hashable, bytes] = {}

    def get(self, image: ClusterImage, question: Hashable) -> bytes | None:
        if image.topics is not self._image.topics or image.brokers is not self._image.brokers:
            self._bodies.clear()
        self._image = image
        return self._bodies.get(question)

    def keep(self, question: Hashable, body: bytes) -> None:
        """The answer to what `get` was just asked."""
        if len(self._bodies) >= ANSWERS_AT_MOST:
            del self._bodies[next(iter(self._bodies))]
        self._bodies[question] = body
