"""The node: starts and stops a broker's parts in order.

`run` is the main function of a broker process; `Node` is the part inside the event loop.
"""

import asyncio
import gc
import logging
import socket
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from moldau import compiled
from moldau.base.errors import Refusal
from moldau.base.session import ENCRYPTED
from moldau.base.settings import SettingsRefused
from moldau.broker import process
from moldau.broker.assembly import assemble, connect_with_login, coordinate
from moldau.broker.clock import Clock
from moldau.broker.cluster.boot import boot_id, note, trusted
from moldau.broker.cluster.broker_lifecycle import BrokerLifecycle
from moldau.broker.cluster.broker_registration import BrokerRegistration, Findings
from moldau.broker.cluster.election_rules import resulting_changes
from moldau.broker.cluster.startup_retry import StartupRetry, StopRequested
from moldau.broker.cluster.store_migration import changes_for, read_metadata, set_aside
from moldau.broker.config_providers import resolve
from moldau.broker.configs import effective
from moldau.broker.context import RunningConfig
from moldau.broker.controller import Controller
from moldau.broker.listener_settings import Listener
from moldau.broker.organisations.exchange import EXCHANGE_MS
from moldau.broker.peers import Peers
from moldau.broker.replica_manager import ReplicaManager
from moldau.broker.scheduler import PeriodicTask, Scheduler
from moldau.broker.security.credentials import token_secret
from moldau.broker.security.first_users import first_users, forget_first_users
from moldau.broker.settings import BrokerConfig, load
from moldau.broker.stray_partitions import partitions_in, warn_of_unknown
from moldau.log.directory import DirectoryFailed, DirectoryRefused, LogDirectory
from moldau.log.reserve import DiskReserve
from moldau.log.settings import LogConfig
from moldau.metadata import features
from moldau.metadata.changes import Change
from moldau.metadata.image import ALL_DIRECTORIES, Broker, ClusterImage, Endpoint, Topic
from moldau.metadata.splitting import TRANSACTION_BYTES
from moldau.net.listener import CannotListen, ConnectionLimits, Listeners
from moldau.net.peer import Connect, connect_plain, connect_tls
from moldau.net.request_limits import RequestLimits
from moldau.replication.compactor import CleanerSettings, Compactor
from moldau.replication.owners import StandaloneOwner
from moldau.replication.replicas import Replicas
from moldau.store.port import Store, StoreError
from moldau.store.sqlite import SqliteStore
from moldau.store.zookeeper import ZooKeeperStore

if TYPE_CHECKING:
    from moldau.broker.tls import BrokerTls

logger = logging.getLogger("moldau.broker")

STORE_FILE = "moldau-metadata.sqlite"
STORE_RESERVE_BYTES = 2 * 1024 * 1024  # more than the deletion of the largest topic that one transaction deletes
STORE_PATIENCE_S = 15.0  # how long a metadata change waits for an unreachable ensemble
IDLE_CHECKS = 10  # idle connections are looked for so many times per idle time
LEAST_IDLE_CHECK_MS = 100
REOPEN_MS = 1_000  # how often to retry partitions that could not be opened on a full disk
CERTIFICATE_CHECK_MS = 3_000  # how often the files of certificates are looked at
FLUSH_CHECK_MS = 250  # the precision of flush.ms

EXIT_OK, EXIT_FAILED, EXIT_REFUSED = 0, 1, 2


class Started(NamedTuple):
    """A broker that is ready, as `run` announces it."""

    node_id: int
    cluster_id: str
    addresses: tuple[str, ...]  # host:port of each listener, as a client on this machine connects to it
    directories: tuple[str, ...]
    partitions: int
    seconds: float


class StartRefused(Exception):
    """The node cannot start; the text is a line for the operator."""


class Broken(Exception):
    """The node had to stop; the text is a line for the operator."""


Announce = Callable[[Started], None]


def run(properties: Mapping[str, str], announce: Announce | None = None, clock: Clock | None = None) -> int:
    """Run a broker until it is told to stop. Returns the process's exit code: 0 stopped, 1 failed, 2 bad settings."""
    begun = time.monotonic()
    process.set_up_logging()
    try:
        config, warnings = load(resolve(properties), host_name=socket.gethostname())
    except SettingsRefused as refused:
        process.tell_problems(properties, refused.problems)
        return EXIT_REFUSED
    for warning in warnings:
        logger.warning("%s", warning)
    process.raise_file_limit(config.max_connections)
    try:
        process.run_loop(_serve(config, announce, begun, clock or Clock()))
    except (StartRefused, Broken) as refused:
        print(f"moldau: {refused}", file=sys.stderr)
        return EXIT_FAILED
    process.ignore_signals()  # again: Python's own loop puts back the default when it closes
    return EXIT_OK


async def _serve(config: BrokerConfig, announce: Announce | None, begun: float, clock: Clock) -> None:
    stop = asyncio.Event()
    node = Node(config, stop, clock)
    process.stop_on_signals(stop.set)
    try:
        started = await node.start(begun)
    except StopRequested:
        process.ignore_signals()
        logger.info("Stopped before the broker was ready")
        return
    except (CannotListen, DirectoryRefused, StoreError) as problem:
        raise StartRefused(str(problem)) from problem
    logger.info(
        "Broker %d of cluster %s is ready at %s after %.2f s; data in %s; hot modules %s",
        started.node_id,
        started.cluster_id,
        ", ".join(started.addresses),
        started.seconds,
        ", ".join(started.directories),
        compiled.describe(),
    )
    if announce is not None:
        announce(started)
    await stop.wait()
    logger.info("Stopping")
    await node.stop()
    process.ignore_signals()
    logger.info("Stopped")
    if node.broken:
        raise Broken(node.broken)


class Node:
    """`stop` is set to stop the node: by a signal, or by the node itself."""

    def __init__(self, config: BrokerConfig, stop: asyncio.Event, clock: Clock) -> None:
        self.broken: str | None = None  # why it had to stop
        self._config = config
        self._stop = stop
        self._startup = StartupRetry(stop)
        self._clock = clock
        self._directories: list[LogDirectory] = []
        self._store: Store | None = None
        self._lifecycle: BrokerLifecycle | None = None  # of a cluster
        self._replica_manager: ReplicaManager | None = None  # in a cluster
        self._loading = False  # the logs are no longer as the last run left them

    async def start(self, begun: float) -> Started:
        """Start until the broker is ready. StopRequested if it is stopped meanwhile: log recovery can take long."""
        config = self._config
        self._request_limits = RequestLimits(
            largest_request=config.socket_request_max_bytes,
            queued_requests=config.queued_max_requests,
            queued_bytes=config.queued_max_request_bytes,
        )
        self._listeners = Listeners(self._request_limits, _limits(config))
        self._tls = _tls(config)
        try:
            self._open_directories()
            ports = {each.name: self._bind(each) for each in config.listeners}
            await self._open_metadata()
            await self._join(ports)
            await self._open_logs()
            self._go()
        except BaseException:
            await self._release()
            raise
        try:
            await self._register()
        except BaseException:
            await self.stop()
            raise
        return self._started(ports, begun)

    def _bind(self, listener: Listener) -> int:
        tls = self._tls.listener(listener.name) if self._tls else None
        return self._listeners.bind(listener.name, listener.host, listener.port, listener.protocol, tls)

    def _connect(self) -> Connect:
        """How connections to other brokers are opened: as clients connect to the inter-broker listener."""
        tls = self._tls
        if tls is None or tls.client_context() is None:
            return connect_plain

        def context() -> ssl.SSLContext:
            current = tls.client_context()
            assert current is not None  # it is replaced, but not removed
            return current

        return connect_tls(context)

    def _tls_problem(self, properties: Mapping[str, str]) -> str | None:
        """Why this broker cannot use these settings, which passed `load`."""
        if self._tls is None:
            return None
        return self._tls.problem(load(properties, host_name=socket.gethostname())[0])

    def _reload_tls(self) -> None:
        if self._tls is not None:
            self._tls.adapt(self._assembly.control.running.current)

    def _open_directories(self) -> None:
        """Open the log directories. One whose disk fails is offline; at least one has to work."""
        problems: list[str] = []
        for path in map(Path, self._config.log_dirs):
            try:
                self._directories.append(LogDirectory.open(path))
            except DirectoryFailed as problem:
                problems.append(str(problem))
                self._directories.append(LogDirectory.failed(path))
        if len(problems) == len(self._directories):
            raise DirectoryRefused("; ".join(problems))
        for failed in problems:
            logger.error("A log directory and its partitions are offline until the broker is restarted: %s", failed)

    async def _open_store(self) -> Controller:
        """Open the metadata store: SQLite for a single node, a ZooKeeper ensemble for a cluster."""
        config = self._config
        if config.zookeeper_connect:
            timeouts = (config.zookeeper_session_timeout_ms, config.zookeeper_connection_timeout_ms)
            opening = ZooKeeperStore.open(config.zookeeper_connect, *timeouts, _zookeeper_tls(config))
            self._store = await self._startup.unless_stopped(opening)
            return Controller(self._store, limit=TRANSACTION_BYTES, patience_s=STORE_PATIENCE_S)
        path = _store_path(self._directories)
        if not path.exists():
            _require_all(self._directories)
        reserve = DiskReserve(path.with_name(f"{STORE_FILE}-reserve"), STORE_RESERVE_BYTES)
        self._store = await SqliteStore.open(path, reserve)
        return Controller(self._store)

    async def _open_metadata(self) -> None:
        config, directories = self._config, self._directories
        now = self._clock.now
        self._controller = controller = await self._open_store()
        known = next((each.cluster_id for each in directories if each.cluster_id), None)
        load = partial(controller.load, known)
        await (self._startup.retry(load) if config.zookeeper_connect else load())
        for directory in directories:
            if not directory.offline:
                directory.ensure_owner(controller.image.cluster_id, config.node_id)
        expiration_ms, topics = config.producer_id_expiration_ms, controller.image.topics
        self._replicas = Replicas(config.node_id, directories, self._configure, now, expiration_ms, topics)
        running, between_brokers = RunningConfig(config), _inter_broker_listener(config)
        connect = connect_with_login(self._connect(), running, between_brokers)
        peers = Peers(lambda: controller.image, between_brokers, node_id=config.node_id, connect=connect)
        parts = (running, controller, self._replicas, now)
        coordinators = coordinate(*parts, peers, self._allocate_producer_ids)
        self._assembly = assembly = assemble(*parts, coordinators, peers, self._tls_problem, self._listeners.sessions)
        self._replicas.inspector = assembly.inspector
        client = assembly.client
        self._compactor = Compactor(self._replicas, lambda: _cleaners(running.current), now)
        if client is not None:
            rules = assembly.control.rules
            registration = BrokerRegistration(controller, config.node_id, peers.listener_name, rules, peers.connect)
            registration.on_replaced = self._give_up
            self._lifecycle = BrokerLifecycle(controller, registration, client, config.node_id, peers.connect)
            controller.resulting_changes = lambda before, after: resulting_changes(running.current, before, after)
            self._replica_manager = ReplicaManager(
                self._replicas,
                peers,
                self._lifecycle,
                lambda: controller.image,
                lambda: running.current,
                now,
                self._give_up,
            )

    async def _allocate_producer_ids(self) -> range | Refusal:
        lifecycle = self._lifecycle
        return await (lifecycle.allocate_producer_ids() if lifecycle else self._controller.allocate_producer_ids())

    async def _join(self, ports: dict[str, int]) -> None:
        """Register a single node, which is its own controller; a broker of a cluster registers when it is ready."""
        config, controller = self._config, self._controller
        endpoints = {each.name: Endpoint(each.host, each.port or ports.get(each.name, 0)) for each in config.advertised}
        listener_name = self._assembly.control.peers.listener_name
        self._broker = Broker(config.node_id, endpoints, config.broker_rack, inter_broker_listener=listener_name)
        founded, usable = controller.founded, [each.path for each in self._directories if not each.offline]
        brought = await self._initial_changes() + first_users(usable, founded=founded)
        lifecycle = self._lifecycle
        if lifecycle is None:
            refusal = await controller.join(self._broker, *brought)
            if refusal is not None:
                raise StoreError(refusal.message)
            if founded:
                forget_first_users(usable, controller.image)
            return
        wait_s = 2 * config.zookeeper_session_timeout_ms / 1000
        await self._startup.retry(lambda: lifecycle.check_id_unused(self._broker, listener_name, wait_s))
        if controller.founded:
            await self._startup.retry(lambda: lifecycle.registration.election.create_cluster(brought))
            forget_first_users(usable, controller.image)
        set_aside(_store_path(self._directories))

    async def _initial_changes(self) -> tuple[Change, ...]:
        """The changes that come with the registration: features, and in a new cluster the topics it had before."""
        config, controller = self._config, self._controller
        if controller.founded:
            _require_all(self._directories)
        own_store = _store_path(self._directories)
        if self._lifecycle is not None and controller.founded and own_store.exists():
            return changes_for(await read_metadata(own_store), config.node_id)
        brought: tuple[Change, ...] = ()
        if controller.image.features_epoch < 0:  # a new cluster, or one of a release that had no features
            brought = (features.newest(),)
        if controller.founded:
            metadata_directory = config.values["metadata.log.dir"]
            kraft = str(metadata_directory) if metadata_directory else None
            if partitions_in(self._directories):
                from moldau.broker.adoption import adopted  # here, because few brokers begin with partitions

                brought += adopted(self._directories, kraft, config.node_id)
        return brought

    async def _open_logs(self) -> None:
        controller, replicas = self._controller, self._replicas
        self._adapt(controller.image)
        self._loading = True
        threads = self._config.num_recovery_threads_per_data_dir
        self._boot = boot_id()
        self._trusted = trusted(self._directories, self._boot)
        opening = partial(replicas.load, controller.image, threads, self._stop.is_set, trusted=self._trusted)
        await asyncio.to_thread(opening)
        if self._stop.is_set():
            raise StopRequested
        warn_of_unknown(controller.image, self._directories)
        # A producer id that a log has seen must not be allocated again, even where the metadata was lost. A broker of a
        # cluster reports it when it registers.
        if self._lifecycle is None and replicas.last_producer_id >= controller.image.next_producer_id:
            await controller.skip_producer_ids(replicas.last_producer_id)
        gc.collect()
        gc.freeze()  # these objects stay: garbage collections need not visit thousands of partitions

    def _go(self) -> None:
        self._follow_quotas(None, self._controller.image)
        self._assembly.follow_organisations(None, self._controller.image)
        self._controller.on_image(self._follow)
        self._replicas.owner = StandaloneOwner(self._give_up)
        if self._replica_manager is not None:
            self._replica_manager.start()
        self._assembly.groups.start()
        self._assembly.transactions.start()
        self._assembly.start_audit()
        self._resuming = asyncio.get_running_loop().create_task(self._replicas.resume_moves())
        self._listeners.start(self._assembly.dispatcher, self._assembly.sasl_gates())
        self._scheduler = Scheduler(self._periodic_tasks(), self._clock)
        self._compactor.start()

    async def _register(self) -> None:
        """Register in the cluster, last: a registered broker may be elected leader, and others connect to it."""
        if self._lifecycle is None:
            return
        registration = self._lifecycle.registration
        findings = Findings(self._trusted, self._replicas.directories.without_records, self._replicas.last_producer_id)
        await self._startup.retry(lambda: registration.start(self._broker, findings))
        await self._startup.unless_stopped(registration.await_controller())
        if self._broker.id in self._controller.image.cordoned:
            logger.warning("This broker is cordoned by cordoned.log.dirs and gets no new partitions")
        await asyncio.to_thread(note, self._directories, self._boot)

    def _started(self, ports: dict[str, int], begun: float) -> Started:
        config, controller = self._config, self._controller
        bound = [each._replace(port=ports[each.name]) for each in config.listeners]
        here = [each._replace(host="localhost") if each.everywhere else each for each in bound]
        return Started(
            node_id=config.node_id,
            cluster_id=controller.image.cluster_id,
            addresses=tuple(each.address for each in here),
            directories=config.log_dirs,
            partitions=sum(1 for _ in self._replicas),
            seconds=time.monotonic() - begun,
        )

    def _periodic_tasks(self) -> tuple[PeriodicTask, ...]:
        config = self._config
        idle_ms = config.connections_max_idle_ms
        checkpoint_ms = min(
            config.log_flush_offset_checkpoint_interval_ms, config.log_flush_start_offset_checkpoint_interval_ms
        )
        tasks = [
            PeriodicTask("checkpoints", checkpoint_ms, self._checkpoint),
            PeriodicTask(
                "retention",
                config.log_retention_check_interval_ms,
                self._replicas.retire,
                config.log_initial_task_delay_ms,
            ),
            PeriodicTask("partitions on a full disk", REOPEN_MS, self._replicas.reopen),
            PeriodicTask("flush.ms", FLUSH_CHECK_MS, self._replicas.flush_due),
            PeriodicTask("committed offsets", config.offsets_retention_check_interval_ms, self._assembly.groups.expire),
            PeriodicTask(
                "transactional ids",
                config.transaction_remove_expired_transaction_cleanup_interval_ms,
                self._assembly.transactions.expire,
            ),
            PeriodicTask("producers", config.producer_id_expiration_check_interval_ms, self._replicas.expire_producers),
        ]
        if (check_ms := config.values["delegation.token.expiry.check.interval.ms"]) and token_secret(config):
            assert isinstance(check_ms, int)
            tasks.append(PeriodicTask("delegation tokens", check_ms, self._assembly.control.tokens.remove_expired))
        if self._replica_manager is not None:
            tasks += [
                PeriodicTask("lagging followers", config.replica_lag_time_max_ms // 2, self._replica_manager.shrink),
                PeriodicTask("high watermarks", config.replica_high_watermark_checkpoint_interval_ms, self._checkpoint),
            ]
        if self._lifecycle is not None and config.auto_leader_rebalance_enable:
            every = config.leader_imbalance_check_interval_seconds * 1000
            registration = self._lifecycle.registration
            balance = partial(registration.rebalance_leaders, config.leader_imbalance_per_broker_percentage)
            tasks.append(PeriodicTask("balance of leaders", every, balance))
        if (exchange := self._assembly.storage_exchange) is not None:
            tasks.append(PeriodicTask("bytes stored by organisations", EXCHANGE_MS, exchange.refresh))
        if self._tls is not None:
            tasks.append(PeriodicTask("certificates", CERTIFICATE_CHECK_MS, self._reload_tls))
        if idle_ms > 0:
            every = max(idle_ms // IDLE_CHECKS, LEAST_IDLE_CHECK_MS)
            tasks.append(PeriodicTask("idle connections", every, self._listeners.close_idle))
        return tuple(tasks)

    async def _checkpoint(self) -> None:
        await self._replicas.checkpoint(reserve=False)  # partitions that are put off now come with the next checkpoint

    def _give_up(self, reason: str) -> None:
        """Stop the broker, as Kafka does when no log directory is left. A supervisor of the process may restart it."""
        self.broken = reason
        self._stop.set()

    def _configure(self, topic: Topic) -> LogConfig:
        return self._assembly.control.running.current.topic_config(topic.config)

    def _follow(self, old: ClusterImage, new: ClusterImage) -> None:
        if old.broker_configs != new.broker_configs:
            self._adapt(new)
            self._replicas.reconfigure(new.topics.values())
        self._follow_quotas(old, new)
        self._assembly.follow_organisations(old, new)
        self._assembly.control.recently_dead.follow(old, new)
        self._replicas.follow(old, new)
        if self._replica_manager is not None:
            self._replica_manager.follow(old, new)
        self._assembly.follow(old, new)

    def _follow_quotas(self, old: ClusterImage | None, new: ClusterImage) -> None:
        quotas = self._assembly.quotas
        if self._assembly.follow_quotas(old, new):
            self._listeners.creation_wait = quotas.connection_wait_s if quotas.active else None
            # A quota that was raised or removed takes effect at once; other parts follow the image before requests run.
            asyncio.get_running_loop().call_soon(self._listeners.end_throttles)

    def _adapt(self, image: ClusterImage) -> None:
        """Apply dynamic settings: those changed now, or before the last restart."""
        config, _ = load(effective(self._assembly.control.layers()), host_name=socket.gethostname())
        self._assembly.control.running.current = config
        cordon(self._directories, config)
        self._assembly.fetch_sessions.slots = config.max_incremental_fetch_session_cache_slots
        self._request_limits.largest_request = config.socket_request_max_bytes
        self._listeners.limits = _limits(config)
        self._reload_tls()
        if self._replica_manager is not None:
            self._replica_manager.adapt()

    async def stop(self) -> None:
        """Stop in order: listeners, requests in progress, logs, then the marks of a clean shutdown."""
        if self._lifecycle is not None:
            if self._config.controlled_shutdown_enable:
                await self._lifecycle.controlled_shutdown()
            self._lifecycle.registration.begin_shutdown()
        self._listeners.stop_listening()
        await self._scheduler.stop()
        await self._compactor.stop()
        await self._assembly.stop_coordinators()
        await self._request_limits.drain()
        self._listeners.close()
        await self._assembly.stop_security()
        if self._replica_manager is not None:
            await self._replica_manager.stop()
        await self._assembly.inspector.stop()
        await self._replicas.stop()
        if self._lifecycle is not None:
            await self._lifecycle.registration.stop()
        else:
            await self._controller.leave()
        await self._assembly.control.peers.stop()
        if self._store is not None:
            try:
                await self._store.close()
            except StoreError as problem:  # a full disk
                logger.error("Closing the metadata store failed; committed metadata is safe: %s", problem)

    async def _release(self) -> None:
        """Release the resources of a start that failed."""
        self._listeners.close()
        if self._store is not None:
            await self._store.close()
        for directory in self._directories:
            directory.close(clean=directory.clean and not self._loading)


def _inter_broker_listener(config: BrokerConfig) -> str:
    """The inter-broker listener: the one that is named, or the one of the inter-broker protocol, or the first."""
    return config.inter_broker_listener


def _tls(config: BrokerConfig) -> "BrokerTls | None":
    """TLS of the listeners; None if none has it, and then nothing of it is imported."""
    if not any(listener.protocol in ENCRYPTED for listener in config.listeners):
        return None
    from moldau.broker.tls import BrokerTls
    from moldau.net.key_stores import TlsProblem

    try:
        return BrokerTls(config, _inter_broker_listener(config))
    except TlsProblem as problem:
        raise StartRefused(str(problem)) from problem


def _zookeeper_tls(config: BrokerConfig) -> ssl.SSLContext | None:
    if not config.values["zookeeper.ssl.client.enable"]:
        return None
    from moldau.broker.tls import zookeeper_context
    from moldau.net.key_stores import TlsProblem

    try:
        return zookeeper_context(config.values)
    except TlsProblem as problem:
        raise StartRefused(str(problem)) from problem


def _store_path(directories: list[LogDirectory]) -> Path:
    """The metadata store is in the first directory, or where an earlier order of log.dirs put it."""
    paths = [directory.path / STORE_FILE for directory in directories if not directory.offline]
    found = [path for path in paths if path.exists()]
    if len(found) > 1:
        raise DirectoryRefused(f"{found[0]} and {found[1]} are the metadata of two nodes; log.dirs must be of one")
    return found[0] if found else paths[0]


def _require_all(directories: list[LogDirectory]) -> None:
    """Refuse to create new metadata while an offline directory may hold the node's metadata."""
    for directory in directories:
        if directory.offline:
            raise DirectoryRefused(
                f"the directory {directory.path} cannot be used, and this node's metadata may be in it, "
                "since the others have none; a new node needs all of its directories"
            )


def cordon(directories: list[LogDirectory], config: BrokerConfig) -> None:
    """Mark the directories that get no new replicas. Unknown ones are ignored (KIP-1066)."""
    cordoned = config.cordoned_log_dirs
    paths = {Path(each).resolve() for each in cordoned}
    for directory in directories:
        directory.cordoned = ALL_DIRECTORIES in cordoned or directory.path in paths


def _cleaners(config: BrokerConfig) -> CleanerSettings:
    """Kafka's limits are for all cleaners together."""
    processes = config.log_cleaner_threads if config.log_cleaner_enable else 0
    share = max(processes, 1)
    return CleanerSettings(
        processes=processes,
        key_memory=int(config.log_cleaner_dedupe_buffer_size * config.log_cleaner_io_buffer_load_factor) // share,
        chunk=config.log_cleaner_io_buffer_size // share // 2,  # as much to read as to write
        bytes_per_second=config.log_cleaner_io_max_bytes_per_second / share,
        backoff_ms=config.log_cleaner_backoff_ms,
    )


def _limits(config: BrokerConfig) -> ConnectionLimits:
    return ConnectionLimits(
        most=config.max_connections,
        most_per_ip=config.max_connections_per_ip,
        overrides=dict(config.ip_connection_limits),
        rate=config.max_connection_creation_rate,
        idle_ms=config.connections_max_idle_ms,
        send_buffer=config.socket_send_buffer_bytes,
        receive_buffer=config.socket_receive_buffer_bytes,
        backlog=config.socket_listen_backlog_size,
    )
