"""OffsetCommit 2–10: store a group's offsets. 2–4: retention time. 6: leader epochs. 7: static members.

9: members of the consumer protocol. 10: topic ids.
"""

from moldau.base.later import NowOrLater
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.groups.offsets import commit as offsets_commit
from moldau.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


def offset_commit(
    ctx: CoordinatorContext, request: OffsetCommitRequest, call: Call
) -> NowOrLater[OffsetCommitResponse]:
    return ctx.groups.ask(
        request.group_id,
        request,
        call,
        lambda error: offsets_commit.refuse(request, error, call.version, ctx.groups.env().topics),
    )
