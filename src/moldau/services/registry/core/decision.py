"""Decision: the records that a request writes, and its answer once they are written. Refusals are RegistryErrors."""

from dataclasses import dataclass

from moldau.services.registry.core.errors import RegistryError, not_permitted
from moldau.services.registry.core.names import context_of
from moldau.services.registry.core.records import Json, Record
from moldau.services.registry.core.scope import mode_in_scope
from moldau.services.registry.core.state import RegistryState


@dataclass(frozen=True, slots=True)
class Decision:
    """Records that are written together or not at all. Without records the answer holds already."""

    answer: Json
    records: tuple[Record, ...] = ()
    status: int = 200


def require_writable(state: RegistryState, subject: str | None) -> None:
    if mode_in_scope(state, subject).read_only:
        raise mode_error(subject, "is in read-only mode")


def mode_error(subject: str | None, problem: str) -> RegistryError:
    where = f"Subject {subject} in context {context_of(subject)}" if subject is not None else "The registry"
    return not_permitted(f"{where} {problem}")
