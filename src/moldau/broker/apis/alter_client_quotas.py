"""AlterClientQuotas 0–1: set and remove quotas. Each entity succeeds or fails by itself, all in one change."""

from collections import Counter
from collections.abc import Mapping

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import NOTHING, ControllerResponse, unless_deposed
from moldau.broker.quota_documents import altered, path_of
from moldau.broker.quota_entities import read_entity
from moldau.metadata.changes import Change, Decide, DocumentsChanged, decide_each
from moldau.metadata.image import ClusterImage
from moldau.security.quotas import QUOTA_KEYS, Entity, wrong_value
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlteration,
    QuotaAlterationResult,
    QuotaOp,
)


async def alter_client_quotas(
    ctx: ControlContext, request: AlterClientQuotasRequest, call: Call
) -> ControllerResponse[AlterClientQuotasResponse]:
    entities = [read_entity((each.entity_type, each.entity_name) for each in entry.entity) for entry in request.entries]
    counts = Counter(each for each in entities if isinstance(each, Entity))
    decides = [
        _deciding(entity, entry, twice=isinstance(entity, Entity) and counts[entity] > 1)
        for entity, entry in zip(entities, request.entries, strict=True)
    ]
    decisions = decide_each(ctx.image, decides) if request.validate_only else await ctx.controller.submit_each(decides)
    results = tuple(_result(entry, decision) for entry, decision in zip(request.entries, decisions, strict=True))
    return unless_deposed(AlterClientQuotasResponse(entries=results), decisions)


def _deciding(entity: Entity | Refusal, entry: QuotaAlteration, *, twice: bool) -> Decide:
    changes = entity if isinstance(entity, Refusal) else _read_changes(entity, entry.ops)
    if twice:
        changes = _invalid("An entity appears more than once in the request.")

    def decide(image: ClusterImage) -> Change | Refusal:
        if isinstance(changes, Refusal) or isinstance(entity, Refusal):
            return changes if isinstance(changes, Refusal) else NOTHING
        path = path_of(entity)
        before = image.documents.get(path)
        after = altered(before, changes)
        return NOTHING if before == after else DocumentsChanged({path: after})

    return decide


def _read_changes(entity: Entity, ops: tuple[QuotaOp, ...]) -> Mapping[str, float | None] | Refusal:
    """The new values, None for those to remove; or what is wrong with one of them."""
    changes: dict[str, float | None] = {}
    for op in ops:
        if op.key in changes:
            return _invalid(f"Duplicate quota key {op.key}")
        if op.remove:
            changes[op.key] = None
            continue
        key = QUOTA_KEYS.get(op.key)
        if key is None or key.of_ip != (entity.ip is not None):
            return _invalid(f"Invalid configuration key {op.key}")
        if wrong := wrong_value(key, op.value):
            return _invalid(wrong)
        changes[op.key] = op.value
    return {name: value for name, value in changes.items() if name in QUOTA_KEYS}


def _result(entry: QuotaAlteration, decision: Change | Refusal) -> QuotaAlterationResult:
    return QuotaAlterationResult(
        error_code=decision.error if isinstance(decision, Refusal) else WireError.NONE,
        error_message=decision.message if isinstance(decision, Refusal) else None,
        entity=entry.entity,
    )


def _invalid(message: str) -> Refusal:
    return Refusal(WireError.INVALID_REQUEST, message)
