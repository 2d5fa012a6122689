"""Which groups there are. Joins none."""

from moldau.client.direct.failed import Failed, failed
from moldau.client.direct.metadata import NETWORK, Cluster, network_failure
from moldau.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def list_groups(cluster: Cluster) -> set[str] | Failed:
    """The names of all groups: every broker is asked for those that it coordinates, again while errors pass."""
    patience = cluster.patience()
    while True:
        answer = _ask_all(cluster)
        if not isinstance(answer, Failed) or not answer.retriable or not patience.again():
            return answer


def _ask_all(cluster: Cluster) -> set[str] | Failed:
    nodes = cluster.brokers()
    if isinstance(nodes, Failed):
        return nodes
    names: set[str] = set()
    for node_id in nodes:
        try:
            answer = cluster.broker(node_id).ask(ListGroupsRequest(), ListGroupsResponse)
        except NETWORK as error:
            return network_failure(f"broker {node_id}", error)
        if answer.error_code:
            return failed(answer.error_code, f"ListGroups of broker {node_id}")
        names |= {group.group_id for group in answer.groups}
    return names
