"""Where `moldau pipeline adopt` puts a checkpoint."""

from pathlib import Path

import pytest

from moldau.tools.common.failure import CommandError
from moldau.tools.pipeline.adopt import adopt_target, local_path

OLD = Path("/old/billing")


def test_local_paths() -> None:
    assert local_path("/old/billing") == local_path("file:///old/billing") == local_path("file:/old/billing") == OLD
    with pytest.raises(CommandError, match="hdfs://host/x is not in a local directory"):
        local_path("hdfs://host/x")


def test_targets(tmp_path: Path) -> None:
    data = str(tmp_path)
    assert adopt_target(OLD, "orders", None, None, data) == tmp_path / "pipelines/orders/checkpoints/billing"
    assert adopt_target(OLD, "orders", "q", None, data).name == "q"
    assert adopt_target(OLD, None, None, "/new", data) == Path("/new")
    for name, to in ((None, None), ("orders", "/new")):
        with pytest.raises(CommandError, match="give either --name or --to"):
            adopt_target(OLD, name, None, to, data)
    with pytest.raises(CommandError, match="'a b' is not a valid query name"):
        adopt_target(OLD, "orders", "a b", None, data)
    with pytest.raises(CommandError, match="not a valid pipeline name"):
        adopt_target(OLD, "a/b", None, None, data)
