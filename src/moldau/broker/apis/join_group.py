"""JoinGroup 0–9: join a classic group; answered when the rebalance has collected its members.

1: rebalance timeouts. 4: MEMBER_ID_REQUIRED (KIP-394). 5: static members. 8: reasons. 9: leaders that skip the
assignment.
"""

from moldau.base.later import NowOrLater
from moldau.broker.call import Call
from moldau.broker.context import CoordinatorContext
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


def join_group(ctx: CoordinatorContext, request: JoinGroupRequest, call: Call) -> NowOrLater[JoinGroupResponse]:
    return ctx.groups.ask(
        request.group_id, request, call, lambda error: JoinGroupResponse(error_code=error, member_id=request.member_id)
    )
