"""Why a client waits: unreachable brokers, a full or offline disk, no coordinator, or the group itself."""

from moldau.client.admin.clients import Admin
from moldau.client.admin.cluster import GROUP, open_cluster
from moldau.client.admin.errors import AdminError, refused
from moldau.client.admin.groups import describe_groups
from moldau.client.admin.log_dirs import read_log_dirs, sick_directories
from moldau.client.admin.reachability import diagnose
from moldau.client.admin.target import Target
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse


def why_stalled(target: Target) -> str:
    """Why brokers take no records or do not answer, in one clause; empty if nothing is wrong."""
    unreachable = diagnose(target)
    if unreachable is not None:
        return str(unreachable)
    try:
        with open_cluster(target) as cluster:
            sick = sick_directories(read_log_dirs(cluster, ()))
    except (AdminError, OSError) as problem:
        return str(problem)
    return sick[0].problem if sick else ""


def why_unassigned(target: Target, group: str) -> str:
    """Why a member gets no partitions, after longer than a rebalance takes, in one clause."""
    stalled = why_stalled(target)
    if stalled:
        return stalled
    try:
        with open_cluster(target) as cluster:
            request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=(group,))
            found = cluster.ask(request, FindCoordinatorResponse).coordinators[0]
        if found.error_code:
            return str(refused(found.error_code, f"group {group!r} has no coordinator"))
        (described,) = describe_groups(Admin(target), [group])
    except (AdminError, OSError) as problem:
        return str(problem)
    members = len(described.members)
    if described.state == "Stable":
        return f"group {group!r} is stable, and its {members} members have all partitions"
    return f"group {group!r} is in state {described.state} with {members} member{'' if members == 1 else 's'}"
