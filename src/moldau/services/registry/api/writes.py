"""Endpoints that change something. Each takes a Call and returns its Decision; only the writer runs them."""

from moldau.services.registry.api.call import Call, require_context
from moldau.services.registry.api.reads import find_version, settings_subject
from moldau.services.registry.core import remove, settings, tags
from moldau.services.registry.core.decision import Decision
from moldau.services.registry.core.register import register as register_schema
from moldau.services.registry.core.requests import read_schema_request


def register(call: Call) -> Decision:
    request = read_schema_request(call.body)
    normalize, force = call.flag("normalize"), call.flag("force")
    return register_schema(call.state, call.parser, call.subject, request, normalize=normalize, force=force)


def modify_tags(call: Call) -> Decision:
    return tags.modify_tags(call.state, call.parser, find_version(call, deleted=False), call.body)


def delete_subject(call: Call) -> Decision:
    return remove.delete_subject(call.state, call.subject, permanent=call.flag("permanent"))


def delete_version(call: Call) -> Decision:
    return remove.delete_version(call.state, call.subject, call.version, permanent=call.flag("permanent"))


def delete_context(call: Call) -> Decision:
    return remove.delete_context(call.state, require_context(call.path["context"].strip(":")))


def put_config(call: Call) -> Decision:
    return settings.put_config(call.state, settings_subject(call), call.body)


def delete_config(call: Call) -> Decision:
    return settings.delete_config(call.state, settings_subject(call))


def put_mode(call: Call) -> Decision:
    return settings.put_mode(call.state, settings_subject(call), call.body, force=call.flag("force"))


def delete_mode(call: Call) -> Decision:
    return settings.delete_mode(call.state, settings_subject(call), recursive=call.flag("recursive"))
