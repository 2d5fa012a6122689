"""Policy of organisations for topics: their products, partitions and retention, whichever user creates or changes one.

The controller asks for every new or changed topic, with the image that it decides by.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from moldau.base.errors import Refusal, WireError
from moldau.broker.organisations.directory import OrganisationReader
from moldau.broker.settings import BrokerConfig
from moldau.metadata.changes import TopicCreated
from moldau.metadata.image import ClusterImage
from moldau.security.organisations import Limits, Organisation, product_of

RETENTION: Final = "retention.ms"
DAY_MS: Final = 86_400_000


class TopicPolicy:
    def __init__(self, config: Callable[[], BrokerConfig], read: OrganisationReader) -> None:
        self._config = config
        self._read = read

    def creating(self, image: ClusterImage, change: TopicCreated) -> TopicCreated | Refusal:
        """The new topic, with the longest retention that it may have if it names none; or why it cannot be created."""
        organisation = self._of(image, change.topic)
        if organisation is None:
            return change
        product = product_of(change.topic.removeprefix(organisation.prefix))
        if product not in organisation.products:
            known = ", ".join(sorted(organisation.products)) or "none yet"
            return _violation(
                f"a topic of organisation {organisation.name} begins with one of its products ({known}) and a dot"
            )
        refusal = self.growing(image, change.topic, len(change.partitions))
        if refusal is not None:
            return refusal
        limits = [each.retention_ms for _, each in _levels(organisation, product) if each.retention_ms is not None]
        if limits and RETENTION not in change.config and not 0 <= self._retention_ms({}) <= min(limits):
            change = replace(change, config={**change.config, RETENTION: str(min(limits))})
        return self.configuring(image, change.topic, change.config) or change

    def growing(self, image: ClusterImage, topic: str, partitions: int) -> Refusal | None:
        """Why a topic cannot get so many new partitions."""
        organisation = self._of(image, topic)
        if organisation is None:
            return None
        product = product_of(topic.removeprefix(organisation.prefix))
        for name, limits in _levels(organisation, product):
            prefix = f"{organisation.prefix}{product}." if name == product else organisation.prefix
            if limits.partitions is None:
                continue
            present = sum(len(each.partitions) for each in image.topics.values() if each.name.startswith(prefix))
            if present + partitions > limits.partitions:
                return _violation(
                    f"{_titled(organisation, name)} may have {limits.partitions} partitions: "
                    f"it has {present}, and {partitions} more were asked for"
                )
        return None

    def configuring(self, image: ClusterImage, topic: str, config: Mapping[str, str]) -> Refusal | None:
        """Why a topic cannot have this config."""
        organisation = self._of(image, topic)
        if organisation is None:
            return None
        asked = self._retention_ms(config)
        for name, limits in _levels(organisation, product_of(topic.removeprefix(organisation.prefix))):
            if limits.retention_ms is not None and not 0 <= asked <= limits.retention_ms:
                longest = f"{limits.retention_ms} ms ({limits.retention_ms / DAY_MS:g} days)"
                return _violation(
                    f"{_titled(organisation, name)} may keep records for {longest} at most: {RETENTION} is {asked}"
                )
        return None

    def _retention_ms(self, config: Mapping[str, str]) -> int:
        return self._config().topic_config(config).retention_ms

    def _of(self, image: ClusterImage, topic: str) -> Organisation | None:
        name, dot, _ = topic.partition(".")
        return self._read(image.documents).get(name) if dot else None


def _levels(organisation: Organisation, product: str) -> Iterator[tuple[str, Limits]]:
    """The limits that hold for a product: its own, and those of its organisation."""
    if product in organisation.products:
        yield product, organisation.products[product]
    yield "", organisation.limits


def _titled(organisation: Organisation, product: str) -> str:
    return f"product {organisation.name}/{product}" if product else f"organisation {organisation.name}"


def _violation(message: str) -> Refusal:
    return Refusal(WireError.POLICY_VIOLATION, f"{message[0].upper()}{message[1:]}.")
