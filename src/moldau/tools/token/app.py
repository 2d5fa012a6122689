"""`moldau token`: create, list, renew and expire delegation tokens of the logged-in user."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.base.times import read_span
from moldau.tools.common.app import App
from moldau.tools.common.confirm import Yes, require_yes
from moldau.tools.common.failure import misused, note
from moldau.tools.common.hints import suggest
from moldau.tools.common.options import CommandContext, client_command
from moldau.tools.common.output import print_json, print_table, print_text, show_time

if TYPE_CHECKING:
    from moldau.client.admin.tokens import Token

app = App(name="token", help="Create, list, renew and expire delegation tokens.")

TokenId = Annotated[str, typer.Argument(metavar="ID", show_default=False)]


@client_command(app, "create")
def create(
    context: CommandContext,
    renewers: Annotated[
        list[str] | None, typer.Option("--renewer", metavar="User:NAME", help="A user that may renew it, too.")
    ] = None,
    lifetime: Annotated[
        str | None,
        typer.Option(
            "--max-lifetime",
            metavar="TIME",
            help="Its longest life, with renewals: 12h, 7d.",
            show_default="delegation.token.max.lifetime.ms",
        ),
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner",
            metavar="User:NAME",
            help="Of another user; needs CreateTokens on it.",
            show_default="the logged-in user",
        ),
    ] = None,
) -> None:
    """Create a token. Its id and HMAC are user name and password of a SCRAM login."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.tokens import create_token

    with open_cluster(context.target) as cluster:
        token = create_token(cluster, renewers or (), _length(lifetime, "--max-lifetime"), owner)
    if context.json:
        print_json({**_document(token), "hmac": token.hmac})
        return
    print_table(("ID", "HMAC", "EXPIRES", "LATEST"), [(token.id, token.hmac, *_times(token)[1:])])
    note(f"The HMAC is a password: keep it secret. Expire it with: {suggest(f'token expire {token.id}')}")


@client_command(app, "list")
def list_all(context: CommandContext) -> None:
    """List the tokens that you own or may renew, without their HMACs."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.tokens import list_tokens

    with open_cluster(context.target) as cluster:
        tokens = list_tokens(cluster)
    if context.json:
        print_json([_document(token) for token in tokens])
    elif tokens:
        rows = [(token.id, token.owner, token.renewers or None, *_times(token)) for token in tokens]
        print_table(("ID", "OWNER", "RENEWERS", "ISSUED", "EXPIRES", "LATEST"), rows)
    else:
        note(f"No delegation tokens. Create one with: {suggest('token create')}")


@client_command(app, "renew")
def renew(
    context: CommandContext,
    token_id: TokenId,
    period: Annotated[
        str | None,
        typer.Option("--period", metavar="TIME", help="From now: 12h.", show_default="delegation.token.expiry.time.ms"),
    ] = None,
) -> None:
    """Renew a token, at most up to its longest life."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.tokens import renew_token

    with open_cluster(context.target) as cluster:
        expires = show_time(renew_token(cluster, token_id, _length(period, "--period")))
    if context.json:
        print_json({"id": token_id, "expires": expires})
    else:
        print_text(f"Token {token_id} expires at {expires} now.")


@client_command(app, "expire")
def expire(
    context: CommandContext,
    token_id: TokenId,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look for the token; change nothing.")] = False,
    yes: Yes = False,
) -> None:
    """Delete a token now. Its connections end with their sessions."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.errors import NoSuchToken
    from moldau.client.admin.tokens import expire_token, list_tokens

    with open_cluster(context.target) as cluster:
        if dry_run:
            if token_id not in {token.id for token in list_tokens(cluster)}:
                raise NoSuchToken(token_id)
        else:
            if not yes:
                require_yes("token expire", f"Delete token {token_id}?")
            expire_token(cluster, token_id)
    outcome = "valid" if dry_run else "deleted"
    if context.json:
        print_json({"id": token_id, "outcome": outcome})
    else:
        print_text(f"{'Would delete' if dry_run else 'Deleted'} token {token_id}.")


def _length(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    try:
        found = read_span(text)
    except ValueError as error:
        raise misused(f"{option} {error}") from None
    if not found:
        raise misused(f"{option} {text!r} is no time at all", remedy="Leave it out for that of the broker")
    return found


def _times(token: "Token") -> tuple[str | None, ...]:
    return tuple(show_time(each) for each in (token.issued_ms, token.expires_ms, token.latest_ms))


def _document(token: "Token") -> dict[str, Any]:
    issued, expires, latest = _times(token)
    return {
        "id": token.id,
        "owner": token.owner,
        "renewers": list(token.renewers),
        "issued": issued,
        "expires": expires,
        "latest": latest,
    }
