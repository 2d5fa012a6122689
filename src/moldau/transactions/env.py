"""What the transaction machine is told from outside: the time, the settings, and a producer id if it asked for one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """The settings that the machine uses, and the finalized feature; defaults are Kafka's."""

    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000  # transactional.id.expiration.ms
    transaction_version: int = 2  # the finalized level of transaction.version


@dataclass(frozen=True, slots=True)
class Env:
    now: int  # milliseconds since the Unix epoch
    config: TransactionConfig
    producer_id: int = -1  # never given to anybody yet; -1 unless a decision asked for one
