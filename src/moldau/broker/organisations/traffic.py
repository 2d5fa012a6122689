"""Traffic of organisations on this broker: bytes in and out by product since its start, and their limits per second."""

from collections.abc import Callable, Mapping
from time import monotonic

from moldau.broker.quotas import BURST, FIRST
from moldau.broker.settings import BrokerConfig
from moldau.security.organisations import Organisation
from moldau.security.quotas import TokenBucket, Window

OTHER = ""  # the product of what belongs to none


class Traffic:
    """Of one product. Its buckets are those of the product and of its organisation, as far as they are limited."""

    __slots__ = ("bytes_in", "bytes_out", "in_buckets", "out_buckets", "product")

    def __init__(self, product: str) -> None:
        self.product = product
        self.bytes_in = 0
        self.bytes_out = 0
        self.in_buckets: tuple[TokenBucket, ...] = ()
        self.out_buckets: tuple[TokenBucket, ...] = ()


class TrafficTable:
    def __init__(self, config: Callable[[], BrokerConfig], clock: Callable[[], float] = monotonic) -> None:
        self._config = config
        self._clock = clock
        self._traffic: dict[tuple[str, str], Traffic] = {}  # by organisation and product
        self._buckets: dict[tuple[str, str, str], TokenBucket] = {}  # by organisation, product and direction

    def of(self, organisation: Organisation, product: str) -> Traffic:
        known = product if product in organisation.products else OTHER
        traffic = self._traffic.get((organisation.name, known))
        if traffic is None:
            traffic = self._traffic[organisation.name, known] = Traffic(known)
            self._limit(organisation, known, traffic)
        return traffic

    def follow(self, organisations: Mapping[str, Organisation]) -> None:
        """Take over the limits, and forget organisations and products that are gone."""
        for (name, product), traffic in list(self._traffic.items()):
            organisation = organisations.get(name)
            if organisation is None or (product != OTHER and product not in organisation.products):
                del self._traffic[name, product]
            else:
                self._limit(organisation, product, traffic)

    def by_product(self, organisation: str) -> dict[str, Traffic]:
        return {product: traffic for (name, product), traffic in self._traffic.items() if name == organisation}

    def _limit(self, organisation: Organisation, product: str, traffic: Traffic) -> None:
        levels = {OTHER: organisation.limits}
        if product != OTHER:
            levels[product] = organisation.products[product]
        ins = [self._bucket((organisation.name, each, "in"), limits.bytes_in) for each, limits in levels.items()]
        outs = [self._bucket((organisation.name, each, "out"), limits.bytes_out) for each, limits in levels.items()]
        traffic.in_buckets = tuple(bucket for bucket in ins if bucket is not None)
        traffic.out_buckets = tuple(bucket for bucket in outs if bucket is not None)

    def _bucket(self, key: tuple[str, str, str], rate: int | None) -> TokenBucket | None:
        """A bucket keeps what it has counted when its rate changes."""
        if rate is None:
            self._buckets.pop(key, None)
            return None
        window_s = self._config().quota_window_size_seconds
        bucket = self._buckets.get(key)
        if bucket is None:
            window = Window(window_s * BURST, window_s * FIRST)
            bucket = self._buckets[key] = TokenBucket(float(rate), window, self._clock())
        bucket.rate = float(rate)
        return bucket
