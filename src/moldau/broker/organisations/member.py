"""Member: the user of an organisation behind a session, with its names, its rights, and what counts its traffic."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from moldau.base.errors import Refusal
from moldau.base.session import Session
from moldau.broker.organisations.storage import Storage
from moldau.broker.organisations.traffic import OTHER, Traffic, TrafficTable
from moldau.broker.quotas import Meter
from moldau.broker.security.authorizer import Rights, RightsSource
from moldau.security.organisation_names import OrganisationNames, ToCluster, ToOrganisation
from moldau.security.organisations import Organisation, product_of
from moldau.security.quotas import TokenBucket
from moldau.wire.hot.fetch import FetchResult

REMEMBERED_TOPICS: Final = 10_000  # of one session


class Member:
    """`source` decides by the member's roles. Produce and Fetch call it for each topic, other requests are renamed."""

    __slots__ = (
        "_names",
        "_prefix",
        "_rights",
        "_session",
        "_source",
        "_storage",
        "_traffic",
        "_traffic_by_token",
        "administered",
        "limited",
        "organisation",
        "to_cluster",
        "to_organisation",
    )

    def __init__(
        self,
        organisation: Organisation,
        user: str,
        names: OrganisationNames,
        source: RightsSource,
        session: Session,
        traffic: TrafficTable,
        storage: Storage,
    ) -> None:
        self.organisation = organisation
        self.administered = organisation.name if organisation.is_administered_by(user) else None
        self.limited = organisation.limits_rates
        self._source = source
        self._session = session
        self._rights = Rights(source, session)
        self.to_cluster = ToCluster(names)
        self.to_organisation = ToOrganisation(names)
        self._names = names
        self._prefix = organisation.prefix.encode()
        self._storage = storage if organisation.limits_storage else None
        self._traffic = traffic
        self._traffic_by_token: dict[bytes, Traffic] = {}  # by the cluster's names

    @property
    def rights(self) -> Rights:
        """By the newest roles: a Fetch that waits may be answered after they have changed."""
        if self._rights.version != self._source.version:
            self._rights = Rights(self._source, self._session)
        return self._rights

    def name(self, name: bytes) -> bytes:
        """The cluster's name for a topic or transactional id."""
        return self._prefix + name

    def token(self, token: bytes, *, by_id: bool) -> bytes:
        """The cluster's name or id for a topic of a Produce or Fetch request."""
        return self._names.topic_id(UUID(bytes=token)).bytes if by_id else self._prefix + token

    def client_id(self, client_id: str) -> str:
        """The client id that quotas of the cluster are set for."""
        return f"{self.organisation.prefix}{client_id}"

    # ── counted by topics ──

    def produce(self, topic: bytes, size: int, meter: Meter | None, *, by_id: bool) -> Refusal | None:
        """Count the records of a Produce request for a topic, by the cluster's name or id; or why they are refused."""
        traffic = self._of(topic, by_id=by_id)
        if self._storage is not None:
            refusal = self._storage.refusal(self.organisation, traffic.product)
            if refusal is not None:
                return refusal
        traffic.bytes_in += size
        if meter is not None:
            for bucket in traffic.in_buckets:
                meter.take(bucket, size)
        return None

    def fetch_buckets(self, topics: Iterable[bytes], *, by_id: bool) -> list[TokenBucket]:
        """The token buckets that limit a Fetch of these topics, by the member's names."""
        found = [self._of(self.token(topic, by_id=by_id), by_id=by_id).out_buckets for topic in dict.fromkeys(topics)]
        return list({id(bucket): bucket for buckets in found for bucket in buckets}.values())

    def fetched(self, results: Iterable[tuple[bytes, FetchResult]], meter: Meter | None, *, by_id: bool) -> None:
        """Count the records of a Fetch response, by the member's names."""
        for token, result in results:
            if result.records is not None:
                traffic = self._of(self.token(token, by_id=by_id), by_id=by_id)
                traffic.bytes_out += result.records.length
                if meter is not None:
                    for bucket in traffic.out_buckets:
                        meter.take(bucket, result.records.length)

    def _of(self, topic: bytes, *, by_id: bool) -> Traffic:
        found = self._traffic_by_token.get(topic)
        if found is None:
            name = self.rights.name_of(topic) if by_id else topic.decode("utf-8", "replace")
            if name is None:  # there is no such topic yet
                return self._traffic.of(self.organisation, OTHER)
            found = self._traffic.of(self.organisation, product_of(name.removeprefix(self.organisation.prefix)))
            if len(self._traffic_by_token) >= REMEMBERED_TOPICS:
                self._traffic_by_token.clear()
            self._traffic_by_token[topic] = found
        return found
