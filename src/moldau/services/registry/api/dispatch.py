"""Dispatch: from an HTTP request to an endpoint and back. Writes run here if this registry is the writer."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response

from moldau.security.acls import Operation
from moldau.services.http.authentication import principal_of
from moldau.services.http.problems import HttpProblem, json_response
from moldau.services.registry.access import Access, topic_of
from moldau.services.registry.api.call import BadRequest, Call, resolve_alias
from moldau.services.registry.api.table import Match, Read, Text, Write, find
from moldau.services.registry.core.decision import Decision
from moldau.services.registry.core.errors import Code, RegistryError
from moldau.services.registry.core.names import normalize
from moldau.services.registry.core.records import Json
from moldau.services.registry.forwarding import FORWARDED, POSITION, Forwarder, headers_to_pass
from moldau.services.registry.node import ELECTION_S, NotWritten, RegistryNode, Role

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
ANSWERED: Final = (MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json")
ACCEPTED: Final = frozenset({*ANSWERED, "application/octet-stream"})
MAX_QUERY_FIELDS: Final = 1_000
RETRY_S: Final = 0.5


class Dispatch:
    """`group` and `cluster_id` are for GET /v1/metadata/id."""

    def __init__(
        self,
        node: RegistryNode,
        forwarder: Forwarder,
        access: Access,
        *,
        group: str,
        legacy_conflict: bool = False,
    ) -> None:
        self._node = node
        self._forwarder = forwarder
        self._access = access
        self._group = group
        self._legacy_conflict = legacy_conflict

    async def __call__(self, request: Request) -> Response:
        try:
            return await self._answer(request)
        except RegistryError as refused:
            # Registries before Confluent's 7.6 put the bare status into the body.
            conflict = refused.code is Code.INCOMPATIBLE_SCHEMA and self._legacy_conflict
            code = refused.status if conflict else int(refused.code)
            raise HttpProblem(refused.status, refused.message, code) from refused
        except BadRequest as bad:
            raise HttpProblem(400, str(bad)) from bad

    async def _answer(self, request: Request) -> Response:
        raw_path = request.scope.get("raw_path", request.scope["path"].encode()).decode("ascii", "replace")
        match = find("GET" if request.method == "HEAD" else request.method, raw_path.partition("?")[0])
        if not isinstance(match, Match):
            if not match:
                raise HttpProblem(404, "HTTP 404 Not Found: there is no such path. Check the address.")
            raise HttpProblem(405, f"HTTP 405 Method Not Allowed: this path takes {', '.join(sorted(match))}.")
        media_type = negotiate(request.headers)
        await self._node.await_ready()
        self._require_right(match, request)
        does = match.endpoint.does
        body = await request.body()
        if isinstance(does, Write):
            return await self._write(request, match, does, body, media_type)
        call = self._call(match, request, read_body(body) if request.method == "POST" else None)
        if isinstance(does, Text):
            return Response(does.run(call), media_type=media_type)
        assert isinstance(does, Read)
        return json_response(does.run(call), media_type)

    def _call(self, match: Match, request: Request, body: Json) -> Call:
        node = self._node
        principal = principal_of(request)

        def sees(subject: str) -> bool:
            return self._access.may(principal, Operation.DESCRIBE, subject)

        query = read_query(request)
        return Call(node.state, node.parser, match.path, query, body, node.cluster_id, self._group, sees)

    def _require_right(self, match: Match, request: Request) -> None:
        needs, principal = match.endpoint.needs, principal_of(request)
        subject = match.path.get("subject")
        if subject is not None:
            subject = resolve_alias(self._node.state, normalize(subject))
            subject = subject if topic_of(subject) else None  # a context: all of its subjects
        if needs is None or self._access.may(principal, needs, subject):
            return
        if subject is None:
            what = "the cluster"
        else:
            what = f"topic '{topic_of(subject)}', whose ACLs are those of subject '{subject}'"
        message = f"User {principal.user} is denied {needs.title} on {what}. An ACL that allows it is missing."
        raise RegistryError(Code.FORBIDDEN, message)

    async def _write(self, request: Request, match: Match, does: Write, body: bytes, media_type: str) -> Response:
        """Write here or where it is written, again after an election: a change is tried again only if that is safe."""
        read = read_body(body) if request.method in ("POST", "PUT") else None
        problem = "no schema registry is elected to write"
        deadline = time.monotonic() + ELECTION_S
        while time.monotonic() < deadline:
            if await self._node.await_role() is Role.WRITER:
                try:
                    decision, position = await self._node.write(lambda *_: does.run(self._call(match, request, read)))
                except NotWritten as failed:
                    problem = str(failed)
                    if failed.uncertain and not does.repeatable:
                        raise _uncertain(problem) from failed
                    continue
                return _written(decision, position, media_type)
            if FORWARDED in request.headers:
                problem = "this schema registry does not write"
                break
            try:
                answer = await self._forward(request, body)
            except RegistryError as failed:
                if failed.code is not Code.FORWARDING_FAILED or not does.repeatable:
                    raise
                answer = failed.message
            if isinstance(answer, Response):
                return answer
            problem = answer
            await self._node.await_election(RETRY_S)
        raise RegistryError(Code.UNKNOWN_LEADER, f"The change was not written: {problem}. Try again.")

    async def _forward(self, request: Request, body: bytes) -> Response | str:
        """The answer of the registry that writes, when this one has read the change too; or why there is none."""
        path = request.scope.get("raw_path", b"/").decode("ascii", "replace").partition("?")[0]
        query = request.scope.get("query_string", b"").decode("ascii", "replace")
        url = self._node.leader_url
        answer = await self._forwarder.send(
            url, request.method, f"{path}?{query}" if query else path, headers_to_pass(request.headers), body
        )
        if answer is None:
            return f"the schema registry at {url}, which writes, cannot be reached"
        if answer.code == Code.UNKNOWN_LEADER:
            return f"the schema registry at {url} does not write yet"
        if answer.position is not None:
            await self._node.reach(answer.position)
        elif answer.status < 400:  # of another kind of registry
            await self._node.catch_up()
        return Response(answer.body, answer.status, media_type=answer.content_type or MEDIA_TYPE)


def _written(decision: Decision, position: int, media_type: str) -> Response:
    headers = {POSITION: str(position)}
    if decision.status == 204:
        return Response(status_code=204, headers=headers)
    return json_response(decision.answer, media_type, decision.status, headers)


def _uncertain(reason: str) -> RegistryError:
    message = f"The topic did not confirm the change: {reason}. It may take effect; look before you retry."
    return RegistryError(Code.OPERATION_TIMED_OUT, message)


def read_body(body: bytes) -> Json:
    """The JSON of a body, which every reader of the topic can read too: no NaN, no halves of characters."""
    if not body.strip():
        raise HttpProblem(400, "The request has no body. Send JSON.")
    try:
        found: Json = json.loads(body, parse_constant=_refuse_constant)
        if b"\\u" in body:
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as problem:
        raise HttpProblem(400, f"The request body is no JSON: {problem}.") from None
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def read_query(request: Request) -> Mapping[str, Sequence[str]]:
    text = request.scope.get("query_string", b"").decode("ascii", "replace")
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        raise HttpProblem(400, f"The query has more than {MAX_QUERY_FIELDS} parameters.") from None


def negotiate(headers: Mapping[str, str]) -> str:
    """The type of the answer; HttpProblem for types that the registry does not have."""
    sent = headers.get("content-type", MEDIA_TYPE).partition(";")[0].strip().lower()
    if sent and sent not in ACCEPTED:
        raise HttpProblem(415, f"HTTP 415 Unsupported Media Type: {sent}. Send {MEDIA_TYPE} or application/json.")
    wanted = [_quality(each) for each in headers.get("accept", "*/*").split(",")]
    for _, kind in sorted(wanted, key=lambda each: -each[0]):
        if kind in ANSWERED:
            return kind
        if kind in ("*/*", "application/*", ""):
            return MEDIA_TYPE
    raise HttpProblem(406, f"HTTP 406 Not Acceptable: answers come as {' or '.join(ANSWERED)}.")


def _quality(accepted: str) -> tuple[float, str]:
    kind, *parameters = (each.strip() for each in accepted.split(";"))
    for each in parameters:
        name, _, value = each.partition("=")
        if name.strip() == "q":
            try:
                return float(value), kind.lower()
            except ValueError:
                return 0.0, kind.lower()
    return 1.0, kind.lower()
