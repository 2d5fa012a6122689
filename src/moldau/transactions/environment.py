"""The inputs of a transaction decision besides the command: time, settings, and a producer id if one was allocated."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """The settings that decisions use, and the finalized transaction.version; defaults are Kafka's."""

    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000  # transactional.id.expiration.ms
    transaction_version: int = 2  # finalized level


@dataclass(frozen=True, slots=True)
class TransactionEnvironment:
    now: int  # milliseconds since the Unix epoch
    config: TransactionConfig
    producer_id: int = -1  # newly allocated for this command; -1: none
