"""Largest matchings of bipartite graphs, for subschemas of combinations and their counterparts."""

from collections.abc import Mapping, Sequence


def largest_matching(edges: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """As many pairs of a left and a right node as the edges allow, each node in one pair at most."""
    left_of: dict[int, int] = {}
    for left in edges:
        _augment(left, edges, left_of)
    return {left: right for right, left in left_of.items()}


def _augment(start: int, edges: Mapping[int, Sequence[int]], left_of: dict[int, int]) -> None:
    """Find a path from `start` to a free right node along which pairs can be swapped, and swap them."""
    came_from: dict[int, int] = {}  # from which left node a right one was reached
    waiting = [start]
    while waiting:
        left = waiting.pop()
        for right in edges[left]:
            if right in came_from:
                continue
            came_from[right] = left
            if right in left_of:
                waiting.append(left_of[right])
                continue
            while True:
                left = came_from[right]
                previous = next((node for node, owner in left_of.items() if owner == left), None)
                left_of[right] = left
                if left == start or previous is None:
                    return
                right = previous
