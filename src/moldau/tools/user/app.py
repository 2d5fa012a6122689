"""`moldau user`: create, list, describe, alter and delete users with SCRAM credentials."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.tools.common.app import App
from moldau.tools.common.confirm import Yes, require_yes
from moldau.tools.common.failure import CommandError, misused, note
from moldau.tools.common.hints import suggest
from moldau.tools.common.options import CommandContext, client_command, read_choices
from moldau.tools.common.output import print_json, print_table, print_text
from moldau.tools.common.passwords import PasswordFile, read_password
from moldau.tools.org.limits import Roles

if TYPE_CHECKING:
    from moldau.client.admin.cluster import Cluster

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT_ITERATIONS = 8192

app = App(name="user", help="Create, list, describe, alter and delete users with SCRAM credentials.")

Name = Annotated[str, typer.Argument(metavar="USER", show_default=False)]
Names = Annotated[list[str] | None, typer.Argument(metavar="USER", help="All if none is named.", show_default=False)]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option("--mechanism", metavar="NAME,…", help="Only these.", show_default=", ".join(MECHANISMS)),
]
Iterations = Annotated[
    int, typer.Option("--iterations", metavar="N", help="Rounds of hashing, 4096 to 16384; more are safer and slower.")
]
Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DATA", help="Write into the data directory of a broker that has never run."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")]


@client_command(app, "create")
def create(
    context: CommandContext,
    name: Name,
    mechanisms: Mechanisms = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    password_file: PasswordFile = None,
    directory: Directory = None,
    roles: Roles = None,
) -> None:
    """Create a user. The password is typed, or read from stdin or a file.

    A user of an organisation is named ORGANISATION/USER, and is a reader of all its products unless roles are given.
    """
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.users import check, create_first_user, list_users, set_password

    chosen = _chosen(mechanisms)
    if directory is not None:
        password = read_password(name, password_file)
        path = create_first_user(directory, name, password, chosen, iterations)
        _tell(context, name, "created", f"Wrote user {name} to {path}; the cluster has it from its first start on.")
        return
    with open_cluster(context.target) as cluster:
        if any(each.name == name for each in list_users(cluster)):
            remedy = f"Change its password with: {suggest(f'user alter {name}')}"
            raise CommandError(f"user {name!r} exists", remedy=remedy)
        password = read_password(name, password_file)
        check(name, password, chosen, iterations)
        given = _give_roles(cluster, name, roles)  # before it can log in: without a role it would see nothing
        set_password(cluster, name, password, chosen, iterations)
    is_member = f" It is {given}." if given else ""
    _tell(context, name, "created", f"Created user {name} for {', '.join(chosen)}.{is_member}")


@client_command(app, "alter")
def alter(
    context: CommandContext,
    name: Name,
    mechanisms: Annotated[
        list[str] | None,
        typer.Option("--mechanism", metavar="NAME,…", help="Only these.", show_default="those that the user has"),
    ] = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    password_file: PasswordFile = None,
) -> None:
    """Change a user's password. Connections stay; new logins need the new one."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.users import list_users, set_password

    with open_cluster(context.target) as cluster:
        (user,) = list_users(cluster, [name])
        chosen = _chosen(mechanisms) if mechanisms else list(user.iterations)
        set_password(cluster, name, read_password(name, password_file), chosen, iterations)
    _tell(context, name, "altered", f"Changed the password of {name} for {', '.join(chosen)}.")


@client_command(app, "list")
def list_all(context: CommandContext) -> None:
    """List the users."""
    _show(context, None)


@client_command(app, "describe")
def describe(context: CommandContext, names: Names = None) -> None:
    """Show mechanisms and iterations of users; never hashes or salts."""
    _show(context, names)


@client_command(app, "delete")
def delete(
    context: CommandContext, name: Name, mechanisms: Mechanisms = None, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Delete a user's credentials. Its quotas, ACLs and roles stay, and its connections until they end."""
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.users import delete_credentials, list_users

    with open_cluster(context.target) as cluster:
        (user,) = list_users(cluster, [name])
        chosen = [each for each in user.iterations if not mechanisms or each in _chosen(mechanisms)]
        if not chosen:
            raise misused(f"user {name!r} has none of these mechanisms", remedy=f"It has {', '.join(user.iterations)}")
        credentials = ", ".join(chosen)
        if dry_run:
            _tell(context, name, "valid", f"Would delete the credentials of {name} for {credentials}.")
            return
        if not yes:
            require_yes("user delete", f"Delete the credentials of {name} for {credentials}?")
        delete_credentials(cluster, name, chosen)
    _tell(context, name, "deleted", f"Deleted the credentials of {name} for {credentials}.")


def _give_roles(cluster: "Cluster", name: str, roles: list[str] | None) -> str:
    """Make the user a member of its organisation; returns its roles in words, or "" for a user of the cluster."""
    from moldau.client.admin import organisations
    from moldau.security.organisations import Role
    from moldau.tools.org.limits import read_roles, show_roles

    if "/" not in name:
        if roles:
            raise misused("--role is for users of organisations", remedy="Name the user ORGANISATION/USER")
        return ""
    organisation, user = organisations.split_name(name, "USER")
    given = read_roles(roles, Role.READER)
    organisations.change(cluster, organisation, organisations.with_roles(user, given.items()))
    return show_roles(given)


def _chosen(mechanisms: list[str] | None) -> list[str]:
    return sorted(read_choices(mechanisms, "--mechanism", MECHANISMS)) if mechanisms else list(MECHANISMS)


def _show(context: CommandContext, names: list[str] | None) -> None:
    from moldau.client.admin.cluster import open_cluster
    from moldau.client.admin.users import list_users

    with open_cluster(context.target) as cluster:
        users = list_users(cluster, names)
    if context.json:
        print_json([{"user": user.name, "mechanisms": dict(user.iterations)} for user in users])
    elif users:
        rows = [(user.name, each, count) for user in users for each, count in user.iterations.items()]
        print_table(("USER", "MECHANISM", "ITERATIONS"), rows)
    else:
        note(f"No users with SCRAM credentials yet. Create one with: {suggest('user create NAME')}")


def _tell(context: CommandContext, name: str, outcome: str, sentence: str) -> None:
    if context.json:
        print_json({"user": name, "outcome": outcome})
    else:
        print_text(sentence)
