"""Ports of local servers."""

import pytest

from moldau.ensemble.ports import free_ports


def test_a_port_is_not_given_twice() -> None:
    among = range(20_000, 20_040)
    given = [port for _ in range(10) for port in free_ports(2, among)]
    assert len(set(given)) == 20
    with pytest.raises(OSError, match="fewer than 30 ports are free from 20000 to 20039"):
        free_ports(30, among)
