"""Broker settings: `BrokerConfig`, the typed values in use, and the fate of every setting that Kafka knows.

The rows are in `tables/`. A setting is used, or has no meaning here (accepted with a warning), or belongs to a feature
that is not supported yet (accepted with a warning, or refused where users would rely on it). Any other name is refused.
`python -m moldau.broker.settings` prints docs/settings.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from moldau.base.session import ANONYMOUS, AUTHENTICATED, SecurityProtocol
from moldau.base.settings import Live, Setting, SettingError, SettingsRefused, Table, Value, shortened
from moldau.broker.listener_overrides import ListenerOverrides, Override, of_listeners, split
from moldau.broker.listener_settings import (
    Listener,
    advertise,
    advertised_warnings,
    clashes,
    read_listener,
    read_protocols,
    wrong_advertised,
)
from moldau.broker.tables.clusters import CLUSTERS
from moldau.broker.tables.coordination import COORDINATION
from moldau.broker.tables.coordinators import COORDINATORS
from moldau.broker.tables.idle import IDLE
from moldau.broker.tables.replication import REPLICATION
from moldau.broker.tables.sasl import SASL
from moldau.broker.tables.security import AUDIT, AUTHORIZATION, AUTHORIZERS, SECURITY, SECURITY_GUARDS
from moldau.broker.tables.storage import STORAGE, STORAGE_GUARDS
from moldau.broker.tables.tls import TLS
from moldau.broker.tables.used import USED
from moldau.groups.settings import broker_problems
from moldau.log.settings import MAX_INT, TOPIC, LogConfig
from moldau.store.zookeeper import read_connect


def _topic_defaults() -> Iterator[Setting]:
    """The broker settings that are defaults of topic settings: same kind and bounds, changed dynamically."""
    for topic in TOPIC:
        if len(topic.synonyms) == 1:  # settings that come in several units have rows of their own
            doc = f"Default of the topic setting {topic.name}: {topic.doc[0].lower()}{topic.doc[1:]}"
            yield topic._replace(name=topic.synonyms[0].name, live=Live.CLUSTER_WIDE, synonyms=(), doc=doc)


LATER = (*COORDINATORS, *SECURITY, *STORAGE)
TOPIC_DEFAULTS = tuple(_topic_defaults())
MEANINGLESS = {setting.name: group.what for group in IDLE for setting in group.settings}  # name → why
NOT_YET = {setting.name: group.what for group in LATER for setting in group.settings}  # name → the feature
GUARDS = SECURITY_GUARDS | STORAGE_GUARDS  # name → the harm of ignoring it

BROKER = Table(
    "broker",
    (
        *USED,
        *CLUSTERS,
        *AUDIT,
        *AUTHORIZATION,
        *COORDINATION,
        *REPLICATION,
        *SASL,
        *TLS,
        *TOPIC_DEFAULTS,
        *(setting for group in (*IDLE, *LATER) for setting in group.settings),
    ),
)


def row_of(name: str) -> Setting | None:
    """The row of a setting by its name, which may have the prefix of a listener."""
    override = split(name, BROKER)
    return override.setting._replace(name=name) if override else BROKER.get(name)


# Settings of older versions of Kafka, which Kafka 4 has removed.
GONE = {
    "advertised.host.name": "write advertised.listeners instead",
    "advertised.port": "write advertised.listeners instead",
    "host.name": "write listeners instead",
    "port": "write listeners instead",
    "control.plane.listener.name": "leave it out",
    "inter.broker.protocol.version": "leave it out",
    "log.message.downconversion.enable": "leave it out",
    "log.message.format.version": "leave it out",
    "log.message.timestamp.difference.max.ms": "write log.message.timestamp.before.max.ms and .after.max.ms instead",
}
PLUGIN_PREFIXES = {"rsm.config.": "tiered storage", "rlmm.config.": "tiered storage"}
LEAST_KEY_MEMORY = 1024 * 1024  # bytes, of a cleaner


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A broker's settings, typed: from `broker_rack` on each is named as its setting, with underscores for dots."""

    node_id: int
    listeners: tuple[Listener, ...]
    advertised: tuple[Listener, ...]  # in the order of listeners; port 0 stands for the port that was bound
    log_dirs: tuple[str, ...]
    ip_connection_limits: Mapping[str, int]  # max.connections.per.ip.overrides
    static: Mapping[str, str]  # the given properties, unparsed; node.id and broker.id stand for each other
    values: Mapping[str, Value]  # every setting of the table, typed
    overrides: ListenerOverrides  # settings of single listeners

    broker_rack: str | None
    allow_everyone_if_no_acl_found: bool
    authorizer_class_name: str
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    connections_max_idle_ms: int
    controlled_shutdown_enable: bool
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    cordoned_log_dirs: tuple[str, ...]
    default_replication_factor: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_min_assignment_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_threads: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    moldau_audit_enable: bool
    moldau_audit_max_records_per_second: int
    moldau_audit_topic_replication_factor: int
    moldau_inspection_processes: int
    moldau_inspection_timeout_ms: int
    moldau_schemas_topic: str
    num_partitions: int
    num_recovery_threads_per_data_dir: int
    num_replica_fetchers: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    queued_max_request_bytes: int
    queued_max_requests: int
    quota_window_num: int
    quota_window_size_seconds: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    super_users: str
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int
    zookeeper_connect: str | None
    zookeeper_connection_timeout_ms: int | None
    zookeeper_session_timeout_ms: int

    @property
    def principals_of_super_users(self) -> tuple[str, ...]:
        return super_users(self.super_users)

    def topic_defaults(self) -> LogConfig:
        """The settings of a topic without overrides."""
        return LogConfig.of({}, self.values)

    def topic_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The settings of a topic with these overrides, which were checked before."""
        return LogConfig.of(overrides, self.values)

    @property
    def inter_broker_listener(self) -> str:
        """The listener that is named, or the one of the inter-broker protocol, or the first."""
        values, names = self.values, [each.name for each in self.listeners]
        wanted = str(values["inter.broker.listener.name"] or values["security.inter.broker.protocol"]).upper()
        return wanted if wanted in names else names[0]

    @property
    def has_sasl(self) -> bool:
        return any(each.protocol in AUTHENTICATED for each in self.listeners)

    def of_listener(self, listener: str, mechanism: str = "") -> Mapping[str, Value]:
        """Every setting of the table as a listener has it, and with a SASL mechanism as that mechanism has it there."""
        return self.overrides.over(self.values, listener, mechanism)


PLAIN_FIELDS = {field.name: field.name.replace("_", ".") for field in fields(BrokerConfig)[8:]}


def load(properties: Mapping[str, str], *, host_name: str = "localhost") -> tuple[BrokerConfig, list[str]]:
    """The configuration and the warnings; SettingsRefused with every problem if the broker cannot start.

    `host_name` is this machine's: it is advertised for listeners without a host.
    """
    problems: list[SettingError] = []
    warnings: list[str] = []
    values: dict[str, Value] = {setting.name: setting.default for setting in BROKER}
    overrides: dict[tuple[str, str], dict[str, Value]] = {}
    for name, text in properties.items():
        override = None if name in BROKER else split(name, BROKER)
        setting = override.setting if override else BROKER.get(name)
        value = setting.parse(text) if setting else _foreign(name, warnings)
        if isinstance(value, SettingError):
            problems.append(value if value.name == name else SettingError(name, f"{name}: {value.message}"))
        elif override:
            if _applies(name, override, warnings):
                overrides.setdefault(override[:2], {})[override.setting.name] = value
                _fate(name, override.setting, value, problems, warnings)
        elif setting:
            values[name] = value
            _fate(name, setting, value, problems, warnings)
    listeners, advertised = _listeners(values, host_name, problems, warnings)
    problems += [*_cross_checks(properties, values), *broker_problems(values)]
    limits = _ip_limits(str(values["max.connections.per.ip.overrides"]))
    if isinstance(limits, SettingError):
        problems.append(limits)
    if problems or isinstance(limits, SettingError):
        raise SettingsRefused(problems)
    static = _with_both_ids(properties)
    if "node.id" in static:
        values["node.id"] = values["broker.id"] = int(static["node.id"])
    config = BrokerConfig(
        node_id=values["node.id"],  # type: ignore[arg-type]  # the rows' kinds are the fields' types; a test compares them
        listeners=tuple(listeners),
        advertised=tuple(advertised),
        log_dirs=_log_dirs(values),
        ip_connection_limits=limits,
        static=static,
        values=values,
        overrides=ListenerOverrides(overrides),
        **{field: values[name] for field, name in PLAIN_FIELDS.items()},  # type: ignore[arg-type]
    )
    if config.has_sasl:
        warnings += _check_sasl(config)
    warnings += advertised_warnings(config.listeners, config.advertised)
    return config, warnings + _open_warnings(config)


def _check_sasl(config: BrokerConfig) -> list[str]:
    """Warnings. Raises SettingsRefused."""
    from moldau.broker.security.sasl_settings import sasl_problems, sasl_warnings  # only brokers with SASL need these

    wrong = [*sasl_problems(config, config.inter_broker_listener if config.zookeeper_connect else None)]
    if wrong:
        raise SettingsRefused(wrong)
    return sasl_warnings(config)


def _open_warnings(config: BrokerConfig) -> list[str]:
    """The listeners where clients of other machines may do everything, in words."""
    anyone = not config.authorizer_class_name or str(ANONYMOUS) in config.principals_of_super_users
    found = [
        str(listener)
        for listener in config.listeners
        if not listener.loopback
        and listener.protocol not in AUTHENTICATED
        and not (
            listener.protocol is SecurityProtocol.SSL
            and config.of_listener(listener.name)["ssl.client.auth"] == "required"
        )
    ]
    if not found or not anyone:
        return []
    return [
        f"listeners has {', '.join(found)} without authentication: every client that can connect may do everything; "
        "listen on 127.0.0.1, use a SASL listener, or set authorizer.class.name and ACLs"
    ]


def _with_both_ids(properties: Mapping[str, str]) -> dict[str, str]:
    number = properties.get("node.id", properties.get("broker.id"))
    return dict(properties) if number is None else {**properties, "node.id": number, "broker.id": number}


def _foreign(name: str, warnings: list[str]) -> SettingError | None:
    """A name outside the table: of a plugin, of an older Kafka, or unknown."""
    for prefix, feature in PLUGIN_PREFIXES.items():
        if name.startswith(prefix):
            warnings.append(f"{name} is ignored: {feature} is not supported yet")
            return None
    if name in GONE:
        return SettingError(name, f"{name} belongs to versions of Kafka before 4.0; {GONE[name]}")
    return BROKER.unknown(name)


def _applies(name: str, override: Override, warnings: list[str]) -> bool:
    """Whether a listener may have its own value of the setting; else warn that it is ignored."""
    if of_listeners(override.setting.name):
        return True
    warnings.append(f"{name} is ignored: {override.setting.name} is one setting for all listeners here")
    return False


def _fate(given: str, setting: Setting, value: Value, problems: list[SettingError], warnings: list[str]) -> None:
    """Warn of a setting that is not used, or refuse it. `given` is its name, maybe with the prefix of a listener."""
    name = setting.name
    if name in MEANINGLESS:
        warnings.append(f"{given} has no meaning here and is ignored: {MEANINGLESS[name]}")
    elif name in GUARDS and value not in (setting.default, "", ()):
        problems.append(SettingError(given, f"{given} is not supported yet; {GUARDS[name]}"))
    elif name in NOT_YET:
        feature = NOT_YET[name]
        warnings.append(f"{given} is ignored: {feature} {'are' if feature.endswith('s') else 'is'} not supported yet")


def _listeners(
    values: Mapping[str, Value], host_name: str, problems: list[SettingError], warnings: list[str]
) -> tuple[list[Listener], list[Listener]]:
    """Listeners and advertised listeners, without those of a KRaft controller."""
    protocols = read_protocols(str(values["listener.security.protocol.map"]))
    if isinstance(protocols, SettingError):
        problems.append(protocols)
        return [], []
    controllers = {name.upper() for name in _words(values["controller.listener.names"])}
    found: dict[str, list[Listener]] = {}
    misread: list[SettingError] = []
    for setting in ("listeners", "advertised.listeners"):
        found[setting] = []
        for text in _words(values[setting]):
            if text.partition("://")[0].strip().upper() in controllers:
                if setting == "listeners":
                    warnings.append(f"listeners has {text}, which is not opened: there is no KRaft quorum")
                continue
            listener = read_listener(setting, text, protocols)
            if isinstance(listener, SettingError):
                misread.append(listener)
            else:
                found[setting].append(listener)
    listeners, advertised = found["listeners"], found["advertised.listeners"]
    if misread:
        problems += misread
        return listeners, advertised
    if not listeners:
        problems.append(SettingError("listeners", "listeners must have at least one for clients, as NAME://host:port"))
    wrong = [clashes(listeners), wrong_advertised(advertised, listeners)]
    wrong.append(_wrong_inter_broker(values, listeners))
    problems.extend(each for each in wrong if each)
    told = {listener.name: listener for listener in [*listeners, *advertised]}
    return listeners, advertise([told[listener.name] for listener in listeners], host_name)


def _wrong_inter_broker(values: Mapping[str, Value], listeners: list[Listener]) -> SettingError | None:
    name = values["inter.broker.listener.name"]
    names = sorted(listener.name for listener in listeners)
    if name and str(name).upper() not in names:
        words = f"inter.broker.listener.name must be one of the listeners ({', '.join(names)}), got {name}"
        return SettingError("inter.broker.listener.name", words)
    protocol = values["security.inter.broker.protocol"]
    if protocol == BROKER["security.inter.broker.protocol"].default:
        return None
    if name:
        words = "only one of inter.broker.listener.name and security.inter.broker.protocol may be set; leave one out"
        return SettingError("security.inter.broker.protocol", words)
    if str(protocol) not in names:
        words = f"security.inter.broker.protocol is {protocol}, but no listener has this name ({', '.join(names)})"
        return SettingError("security.inter.broker.protocol", f"{words}; set inter.broker.listener.name instead")
    return None


def _cross_checks(given: Mapping[str, str], values: Mapping[str, Value]) -> Iterator[SettingError]:
    """Checks over several settings, and checks beyond bounds."""
    if values["zookeeper.connect"]:
        try:
            read_connect(str(values["zookeeper.connect"]))
        except ValueError as problem:
            yield SettingError("zookeeper.connect", f"zookeeper.connect {problem}")
    if "node.id" in given and "broker.id" in given and values["node.id"] != values["broker.id"]:
        both = f"got {values['broker.id']} and {values['node.id']}"
        yield SettingError("broker.id", f"broker.id must be the same as node.id where both are set, {both}")
    elif "broker.id" in given and isinstance(values["broker.id"], int) and values["broker.id"] < 0:
        yield SettingError("broker.id", f"broker.id must be at least 0, got {values['broker.id']}")
    if _words(values["process.roles"]) == ("controller",):
        words = "process.roles must include broker: Moldau has no KRaft controllers"
        yield SettingError("process.roles", words)
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if values[name] == 0:
            yield SettingError(name, f"{name} must be at least 1, or -1 for ever, got 0")
    for name, least in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0), ("log.flush.interval.ms", 0)):
        value = values[name]
        if isinstance(value, int) and value < least:
            yield SettingError(name, f"{name} must be at least {least}, got {value}")
    if not all(_log_dirs(values)):
        name = "log.dirs" if values["log.dirs"] is not None else "log.dir"
        yield SettingError(name, f"{name} must be a list of directories, and one of them is empty")
    queue, request = values["queued.max.request.bytes"], values["socket.request.max.bytes"]
    bounded = queue != BROKER["queued.max.request.bytes"].default
    if bounded and isinstance(queue, int) and isinstance(request, int) and 0 < queue < request:
        words = f"must be at least socket.request.max.bytes ({request}), or -1 for no limit, got {queue}"
        yield SettingError("queued.max.request.bytes", f"queued.max.request.bytes {words}")
    low, high = values["log.cleaner.min.compaction.lag.ms"], values["log.cleaner.max.compaction.lag.ms"]
    if isinstance(low, int) and isinstance(high, int) and low > high:
        words = f"must be at most log.cleaner.max.compaction.lag.ms, got {low} and {high}"
        yield SettingError("log.cleaner.min.compaction.lag.ms", f"log.cleaner.min.compaction.lag.ms {words}")
    buffer, cleaners = values["log.cleaner.dedupe.buffer.size"], values["log.cleaner.threads"]
    if isinstance(buffer, int) and isinstance(cleaners, int) and buffer <= cleaners * LEAST_KEY_MEMORY:
        words = f"must be more than 1 MiB for each of log.cleaner.threads ({cleaners}), got {buffer}"
        yield SettingError("log.cleaner.dedupe.buffer.size", f"log.cleaner.dedupe.buffer.size {words}")
    rate = values["log.cleaner.io.max.bytes.per.second"]
    if isinstance(rate, float) and not rate > 0:
        words = f"log.cleaner.io.max.bytes.per.second must be more than 0, got {rate}"
        yield SettingError("log.cleaner.io.max.bytes.per.second", words)
    yield from _wrong_authorization(values)
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        words = "max.connections.per.ip can be 0 only where max.connections.per.ip.overrides lets some addresses in"
        yield SettingError("max.connections.per.ip", words)


def _wrong_authorization(values: Mapping[str, Value]) -> Iterator[SettingError]:
    named = str(values["authorizer.class.name"])
    if named and named not in AUTHORIZERS:
        words = f"must be {' or '.join(AUTHORIZERS)}: Moldau runs no Java classes, got '{shortened(named)}'"
        yield SettingError("authorizer.class.name", f"authorizer.class.name {words}")
    for user in super_users(str(values["super.users"])):
        if ":" not in user:
            words = f"super.users must be principals as User:name, separated by semicolons, got '{shortened(user)}'"
            yield SettingError("super.users", words)


def super_users(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip() for each in text.split(";"))))


def _ip_limits(text: str) -> dict[str, int] | SettingError:
    name = "max.connections.per.ip.overrides"
    limits: dict[str, int] = {}
    for pair in filter(None, (word.strip() for word in text.split(","))):
        host, _, limit = (part.strip() for part in pair.rpartition(":"))
        if not host or not (limit.isascii() and limit.isdigit() and len(limit) <= 10 and int(limit) <= MAX_INT):
            return SettingError(name, f"{name} must be a list of address:limit pairs, got '{shortened(pair)}'")
        limits[host.removeprefix("[").removesuffix("]")] = int(limit)
    return limits


def _log_dirs(values: Mapping[str, Value]) -> tuple[str, ...]:
    given = values["log.dirs"] if values["log.dirs"] is not None else values["log.dir"]
    return tuple(dict.fromkeys(_words(given))) or ("",)


def _words(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


if __name__ == "__main__":
    from moldau.broker.settings_page import render

    print(render(), end="")
