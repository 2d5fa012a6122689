"""EndTxn 0–5: commit or abort. 2: PRODUCER_FENCED. 4: TRANSACTION_ABORTABLE. 5: bumps the producer epoch (KIP-890)."""

from moldau.base.later import NowOrLater
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


def end_txn(ctx: CoordinatorContext, request: EndTxnRequest, call: Call) -> NowOrLater[EndTxnResponse]:
    return ctx.transactions.ask(request.transactional_id, request, call, lambda error: EndTxnResponse(error_code=error))
