"""Bytes that organisations store: on partitions that this broker leads, and on those of others as they told last."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Final

from moldau.base.errors import Refusal, WireError
from moldau.security.organisations import Organisation, product_of

FRESH_S: Final = 1.0  # how long a sum over the local partitions is good enough

Stored = Mapping[tuple[str, str], int]  # by organisation and product


class Storage:
    """`local`: topic and size of each partition that this broker leads."""

    def __init__(
        self,
        local: Callable[[], Iterable[tuple[str, int]]],
        organisations: Callable[[], Mapping[str, Organisation]],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._local = local
        self._organisations = organisations
        self._clock = clock
        self._sums: Counter[tuple[str, str]] = Counter()
        self._summed_at = float("-inf")
        self.elsewhere: Mapping[int, Stored] = {}  # by the id of another broker

    def by_product(self, organisation: str) -> dict[str, int]:
        """The bytes on partitions that this broker leads."""
        self._refresh()
        return {product: size for (name, product), size in self._sums.items() if name == organisation}

    def refusal(self, organisation: Organisation, product: str) -> Refusal | None:
        """Why nothing can be written to a product; None: there is space."""
        limits = organisation.products.get(product)
        if limits is not None and limits.bytes_stored is not None:
            stored = self._total(organisation.name, product)
            if stored >= limits.bytes_stored:
                return _full(f"Product {organisation.name}/{product}", limits.bytes_stored, stored)
        most = organisation.limits.bytes_stored
        if most is not None and (stored := self._total(organisation.name, None)) >= most:
            return _full(f"Organisation {organisation.name}", most, stored)
        return None

    def _total(self, organisation: str, product: str | None) -> int:
        """In the cluster, of one product or of all."""
        self._refresh()
        return sum(
            size
            for sums in (self._sums, *self.elsewhere.values())
            for (name, of), size in sums.items()
            if name == organisation and product in (None, of)
        )

    def _refresh(self) -> None:
        now = self._clock()
        if now < self._summed_at + FRESH_S:
            return
        organisations = self._organisations()
        sums: Counter[tuple[str, str]] = Counter()
        for topic, size in self._local():
            name, dot, own = topic.partition(".")
            organisation = organisations.get(name) if dot else None
            if organisation is not None:
                product = product_of(own)
                sums[name, product if product in organisation.products else ""] += size
        self._sums, self._summed_at = sums, now


def _full(what: str, most: int, stored: int) -> Refusal:
    return Refusal(WireError.POLICY_VIOLATION, f"{what} may store {most} bytes, and stores {stored}.")
