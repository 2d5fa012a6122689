"""Documents: their paths, and the znodes above them."""

import pytest

from moldau.base.tree import Create, Delete, Op, Set
from moldau.metadata import documents, znodes
from moldau.metadata.changes import DocumentsChanged, apply
from moldau.metadata.image import ClusterImage

ALICE, APP = "/config/users/alice", "/config/users/alice/clients/app"


def ops(image: ClusterImage, changed: documents.Changed) -> list[Op]:
    """Without the fence, the feed entry and the head of the feed."""
    return znodes.ops_for(DocumentsChanged(changed), image)[1:-2]


def test_znodes_above_a_document_exist_as_long_as_it_needs_them() -> None:
    empty = ClusterImage()
    assert ops(empty, {APP: "{}"}) == [
        Create("/config/users"),
        Create(ALICE),
        Create("/config/users/alice/clients"),
        Create(APP, b"{}"),
    ]
    app = apply(empty, DocumentsChanged({APP: "{}"}))
    assert ops(app, {ALICE: "1"}) == [Set(ALICE, b"1")]
    both = apply(app, DocumentsChanged({ALICE: "1"}))
    assert ops(both, {ALICE: None}) == [Set(ALICE, b"")]
    assert ops(both, {APP: None}) == [Delete(APP), Delete("/config/users/alice/clients")]
    assert ops(app, {APP: None})[-1] == Delete("/config/users")
    assert ops(empty, {APP: None}) == []


@pytest.mark.parametrize(
    ("name", "step"),
    [("alice", "alice"), ("CN=a,O=b/c", "CN%3Da%2CO%3Db%2Fc"), ("..", "%2E%2E"), ("<default>", "%3Cdefault%3E")],
)
def test_a_name_is_one_step_of_a_path(name: str, step: str) -> None:
    assert documents.segment(name) == step


def test_documents_that_are_not_utf_8_are_named() -> None:
    nodes = {op.path: op.data for op in znodes.founding_ops("c") if isinstance(op, Create)}
    with pytest.raises(znodes.MalformedZnodeError, match=ALICE):
        znodes.image_from({**nodes, ALICE: b"\xff"})
