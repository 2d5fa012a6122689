"""Assembly: the coordinators, caches and contexts of a broker, and the dispatcher over them. Starts nothing."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from moldau.base.errors import Refusal
from moldau.base.session import Session
from moldau.broker.cluster.controller_client import ControllerClient
from moldau.broker.context import Contexts, ControlContext, CoordinatorContext, DataContext, RunningConfig
from moldau.broker.controller import Controller
from moldau.broker.coordinators.add_partitions_sender import AddPartitionsSender
from moldau.broker.coordinators.group_coordinator import GroupCoordinator
from moldau.broker.coordinators.marker_sender import MarkerSender
from moldau.broker.coordinators.marker_writer import MarkerWriter
from moldau.broker.coordinators.transaction_coordinator import TransactionCoordinator
from moldau.broker.dispatch import Dispatcher
from moldau.broker.fetch_sessions import FetchSessionCache
from moldau.broker.organisations.directory import Directory, OrganisationReader
from moldau.broker.organisations.exchange import StorageExchange
from moldau.broker.organisations.policy import TopicPolicy
from moldau.broker.own_records import OwnRecords
from moldau.broker.peers import Peers
from moldau.broker.producer_ids import ProducerIds
from moldau.broker.quotas import ClientQuotas
from moldau.broker.recently_dead import RecentlyDead
from moldau.broker.schemas.dead_letter_topics import PURPOSE as DEAD_LETTERS
from moldau.broker.schemas.dead_letter_topics import DeadLetterTopics
from moldau.broker.schemas.enforcement import SchemaInspector
from moldau.broker.schemas.follower import SchemasFollower
from moldau.broker.security.audit import Audit
from moldau.broker.security.audit_writer import PURPOSE, AuditTopic, AuditWriter
from moldau.broker.security.authorizer import Authorizer
from moldau.broker.security.delegation_tokens import DelegationTokens
from moldau.broker.security.denials import Denials
from moldau.broker.security.gate import Gate
from moldau.broker.security.guards.table import GUARDS
from moldau.broker.settings import BrokerConfig
from moldau.broker.table import APIS
from moldau.broker.topics import TopicCreator
from moldau.broker.verification_queue import VerificationQueue
from moldau.metadata.image import ClusterImage
from moldau.net.peer import Connect
from moldau.replication.record_workers import RecordWorkers, WorkerSettings
from moldau.replication.replicas import Replicas
from moldau.security.audit import AuditBuffer

if TYPE_CHECKING:
    from moldau.broker.security.authenticator import SaslGate
    from moldau.broker.security.sasl_server import SaslServer

SERVED = [api.messages for api in APIS if not api.messages.between_brokers]
ACTIONS = [api.messages.name for api in APIS if api.audited is not None]


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts that the node starts and stops, and that follow the image."""

    marker_sender: MarkerSender
    add_partitions_sender: AddPartitionsSender
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    fetch_sessions: FetchSessionCache
    client: ControllerClient | None
    control: ControlContext
    dispatcher: Dispatcher
    sasl: "SaslServer | None"  # None if no listener has SASL: then its modules are not loaded
    quotas: ClientQuotas
    audit: Audit | None
    inspector: SchemaInspector
    storage_exchange: StorageExchange | None  # None on a single node

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        self.groups.follow(old, new)
        self.transactions.follow(old, new)
        self.marker_sender.follow(old, new)
        self.add_partitions_sender.follow(old, new)

    def follow_quotas(self, old: ClusterImage | None, new: ClusterImage) -> bool:
        """Whether quotas changed. None for the first image."""
        changed = self.quotas.follow(old, new)
        self.dispatcher.quotas = self.quotas if self.quotas.active else None
        return changed

    def follow_organisations(self, old: ClusterImage | None, new: ClusterImage) -> None:
        organisations = self.control.organisations
        organisations.follow(old, new)
        self.dispatcher.organisations = organisations if organisations.organisations else None

    def sasl_gates(self) -> "dict[str, SaslGate]":
        """The gates of listeners with SASL."""
        return {} if self.sasl is None else self.sasl.gates(self.dispatcher.log_in, self.dispatcher)

    def start_audit(self) -> None:
        if self.audit is not None:
            self.audit.writer.start()

    async def stop_security(self) -> None:
        """Stop logins, and then the audit, which has their failures."""
        if self.sasl is not None:
            self.sasl.stop()
        if self.audit is not None:
            await self.audit.writer.stop()

    async def stop_coordinators(self) -> None:
        await self.transactions.stop()
        await self.groups.stop()
        await self.marker_sender.stop()
        await self.add_partitions_sender.stop()


class Coordinators(NamedTuple):
    producer_ids: ProducerIds
    marker_sender: MarkerSender
    add_partitions_sender: AddPartitionsSender
    groups: GroupCoordinator
    transactions: TransactionCoordinator


def assemble(
    running: RunningConfig,
    controller: Controller,
    replicas: Replicas,
    now: Callable[[], int],
    coordinators: Coordinators,
    peers: Peers,
    tls_problem: Callable[[Mapping[str, str]], str | None],
    client_sessions: Callable[[], Iterable[Session]],
) -> Assembly:
    """`tls_problem` says why this broker cannot change to some settings of TLS. `client_sessions`: all open ones."""
    config = running.current
    producer_ids, marker_sender, add_partitions_sender, groups, transactions = coordinators

    def current() -> BrokerConfig:
        return running.current

    def image() -> ClusterImage:
        return controller.image

    client = ControllerClient(controller, peers, config.node_id, lambda *request: dispatcher.serve(*request))
    in_cluster = client if config.zookeeper_connect else None
    sessions, read = FetchSessionCache(config.max_incremental_fetch_session_cache_slots), OrganisationReader()
    topics = TopicCreator(controller, in_cluster, replicas, current, TopicPolicy(current, read))
    organisations = Directory(image, current, read, Denials(), client_sessions, lambda: _led_sizes(replicas))
    authorizer = _authorizer(config, image, organisations.denials)
    data = DataContext(running, controller, replicas, sessions, transactions, VerificationQueue(), now, authorizer)
    control = ControlContext(
        running,
        controller,
        config.static,
        SERVED,
        topics,
        replicas,
        peers,
        RecentlyDead(),
        lambda frame, session: dispatcher.serve_forwarded(frame, session),
        tls_problem,
        DelegationTokens(controller, current, now),
        authorizer,
        organisations,
    )
    coordinator = CoordinatorContext(running, controller, groups, transactions, producer_ids, topics, now)
    gate = Gate(authorizer, GUARDS, image, current)
    dispatcher = Dispatcher(Contexts(data, control, coordinator, in_cluster), APIS, gate)
    sasl = _sasl_server(running, image, now, organisations)
    return Assembly(
        *(marker_sender, add_partitions_sender, groups, transactions),
        fetch_sessions=sessions,
        client=in_cluster,
        control=control,
        dispatcher=dispatcher,
        sasl=sasl,
        quotas=ClientQuotas(current),
        audit=_audit(control, dispatcher, sasl, now),
        inspector=_inspector(control, now),
        storage_exchange=StorageExchange(organisations, peers, image, config.node_id) if in_cluster else None,
    )


def coordinate(
    running: RunningConfig,
    controller: Controller,
    replicas: Replicas,
    now: Callable[[], int],
    peers: Peers,
    allocate_producer_ids: Callable[[], Awaitable[range | Refusal]],
) -> Coordinators:
    """The coordinators of groups and transactions, and what they send to other brokers with."""

    def current() -> BrokerConfig:
        return running.current

    def image() -> ClusterImage:
        return controller.image

    marker_sender, add_partitions_sender = MarkerSender(peers), AddPartitionsSender(peers)
    groups = GroupCoordinator(replicas, current, image, now)
    markers = MarkerWriter(replicas, groups, image, now, running.current.node_id, marker_sender)
    producer_ids = ProducerIds(allocate_producer_ids)
    transactions = TransactionCoordinator(replicas, markers, producer_ids, current, image, now, add_partitions_sender)
    return Coordinators(producer_ids, marker_sender, add_partitions_sender, groups, transactions)


def connect_with_login(connect: Connect, running: RunningConfig, listener: str) -> Connect:
    """The same with a login at the other broker, if its listener wants one."""
    if not running.current.has_sasl:
        return connect
    from moldau.broker.security.peer_login import logged_in
    from moldau.broker.security.sasl_settings import own_login

    if own_login(running.current, listener) is None:
        return connect
    return logged_in(connect, lambda: own_login(running.current, listener))


def _sasl_server(
    running: RunningConfig, image: Callable[[], ClusterImage], now: Callable[[], int], organisations: Directory
) -> "SaslServer | None":
    if not running.current.has_sasl:
        return None
    from moldau.broker.security.sasl_server import SaslServer

    return SaslServer(lambda: running.current, image, now, organisations.refusal)


def _led_sizes(replicas: Replicas) -> Iterator[tuple[str, int]]:
    return ((partition.topic, partition.log.size) for partition in replicas if partition.leads)


def _authorizer(config: BrokerConfig, image: Callable[[], ClusterImage], denials: Denials) -> Authorizer | None:
    if not config.authorizer_class_name:
        return None
    everyone = config.allow_everyone_if_no_acl_found
    return Authorizer(config.principals_of_super_users, image, denials, allow_everyone=everyone)


def _inspector(ctx: ControlContext, now: Callable[[], int]) -> SchemaInspector:
    config = ctx.config

    def image() -> ClusterImage:
        return ctx.image

    def settings() -> WorkerSettings:
        return WorkerSettings(ctx.config.moldau_inspection_processes, ctx.config.moldau_inspection_timeout_ms / 1000)

    follower = SchemasFollower(config.moldau_schemas_topic, config.node_id, ctx.replicas, ctx.peers, image)
    records = OwnRecords(DEAD_LETTERS, config.node_id, ctx.replicas, ctx.peers, image, now)
    dead_letters = DeadLetterTopics(records, image, ctx.topics.create_specified)
    return SchemaInspector(RecordWorkers(settings), follower, dead_letters, lambda topic: topic in ctx.image.topics)


def _audit(
    ctx: ControlContext, dispatcher: Dispatcher, sasl: "SaslServer | None", now: Callable[[], int]
) -> Audit | None:
    """The audit, which hears of requests, failed logins and denials; None if it is turned off."""
    config = ctx.config
    if not config.moldau_audit_enable:
        return None
    records = OwnRecords(PURPOSE, config.node_id, ctx.replicas, ctx.peers, lambda: ctx.image, now)
    topic = AuditTopic(records, lambda: ctx.image, ctx.topics.create_missing)
    buffer = AuditBuffer(config.node_id, config.moldau_audit_max_records_per_second, now(), monotonic())
    audit = dispatcher.audit = Audit(buffer, AuditWriter(buffer, topic.append, now), ACTIONS, now)
    if sasl is not None:
        sasl.on_failed = audit.login_failed
    ctx.organisations.denials.on_denied = audit.denied
    return audit
