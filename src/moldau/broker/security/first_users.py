"""First users: credentials that were written into a data directory before the cluster existed.

Brokers that log in at each other with SCRAM need a user before any of them runs: `moldau user create --dir` makes one.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from moldau.broker.security.credentials import user_path
from moldau.log.directory import DirectoryRefused
from moldau.metadata.changes import Change, DocumentsChanged
from moldau.metadata.image import ClusterImage
from moldau.security.users import FIRST_USERS_FILE, read_first_users, with_credentials

logger = logging.getLogger("moldau.broker")


def first_users(directories: Iterable[Path], *, founded: bool) -> tuple[Change, ...]:
    """The changes that create the users, in a cluster that is being founded. Raises DirectoryRefused."""
    changes: list[Change] = []
    for path in _files(directories):
        if not founded:
            logger.warning("Ignoring %s: the cluster exists already; create users with moldau user create", path)
            continue
        try:
            users = read_first_users(path.read_text())
        except OSError as problem:
            raise DirectoryRefused(f"cannot read {path}: {problem.strerror}") from None
        if isinstance(users, str):
            raise DirectoryRefused(f"{path} {users}; delete it, and create its users again")
        changes += [DocumentsChanged({user_path(user): with_credentials(None, each)}) for user, each in users.items()]
        logger.info("Creating %d users of %s", len(users), path)
    return tuple(changes)


def forget_first_users(directories: Iterable[Path], image: ClusterImage) -> None:
    """Delete the files whose users are in the metadata now."""
    for path in _files(directories):
        users = read_first_users(path.read_text())
        missing = [user for user in users if user_path(user) not in image.documents]
        if missing:  # another broker founded the cluster in the same moment, and has not this file
            logger.warning("Ignoring %s: another broker created the cluster without its users %s", path, missing)
        else:
            path.unlink(missing_ok=True)


def _files(directories: Iterable[Path]) -> list[Path]:
    return [path for each in directories if (path := each / FIRST_USERS_FILE).exists()]
