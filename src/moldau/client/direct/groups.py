"""ListGroups on all brokers."""

from moldau.client.direct.failure import Failure, failure_of
from moldau.client.direct.metadata import NETWORK, Cluster, network_failure
from moldau.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def list_groups(cluster: Cluster) -> set[str] | Failure:
    """Ids of all groups: every broker lists the groups that it coordinates. Retries retriable errors."""
    retries = cluster.retries()
    while True:
        response = _ask_all(cluster)
        if not isinstance(response, Failure) or not response.retriable or not retries.again():
            return response


def _ask_all(cluster: Cluster) -> set[str] | Failure:
    nodes = cluster.brokers()
    if isinstance(nodes, Failure):
        return nodes
    names: set[str] = set()
    for node_id in nodes:
        try:
            response = cluster.broker(node_id).ask(ListGroupsRequest(), ListGroupsResponse)
        except NETWORK as error:
            return network_failure(f"broker {node_id}", error)
        if response.error_code:
            return failure_of(response.error_code, f"ListGroups of broker {node_id}")
        names |= {group.group_id for group in response.groups}
    return names
