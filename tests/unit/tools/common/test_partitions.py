"""Topics and partitions as typed."""

import pytest

from moldau.base.ids import TopicPartition
from moldau.client.admin.scope import Scope
from moldau.tools.common.failure import CommandError
from moldau.tools.common.partitions import read_scope, show_partitions


def test_topics_and_partitions_as_typed() -> None:
    assert read_scope("orders", "--topic") == Scope("orders", None)
    assert read_scope("orders:2,0,2", "--topic") == Scope("orders", (0, 2))
    for text in ("", ":1", "orders:", "orders:1,", "orders:x", "orders:-1", "orders:99999999999", "orders:1:2"):
        with pytest.raises(CommandError, match="--topic"):
            read_scope(text, "--topic")
    assert show_partitions([TopicPartition("b", 1), TopicPartition("a", 10), TopicPartition("a", 9)]) == "a:9,10 b:1"
