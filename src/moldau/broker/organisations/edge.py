"""Edge: a member's request in the names of the cluster, and the response in those of its organisation."""

from moldau.broker.call import Call
from moldau.broker.security.gate import Serve, completed
from moldau.wire.messages.registry import ApiMessages
from moldau.wire.names import renamed


class ForeignName(Exception):
    """A response that is about something of others: it is a fault, and is not sent."""


def serve_member(messages: ApiMessages, serve: Serve, request: object, call: Call) -> object:
    """The response to a member, or its Later or coroutine."""
    member = call.member
    if member is None or request is None:  # None: ApiVersions of an unknown version
        return serve(request, call)

    def own_names(response: object) -> object:
        found = renamed(response, member.to_organisation)
        if found is None:
            raise ForeignName(messages.name)
        return found

    return completed(messages, call, serve(renamed(request, member.to_cluster), call), own_names)
