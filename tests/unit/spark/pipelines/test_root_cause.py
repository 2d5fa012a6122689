"""Root causes in one sentence."""

import pytest

from moldau.spark.pipelines.root_cause import describe_exception, root_cause

SPARK_ERROR = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed:
Traceback (most recent call last):
  File "/x/stream.py", line 3, in latestOffset
    raise QueryFailed(text)
moldau.spark.cluster.QueryFailed: the topic orders is gone
 SQLSTATE: 38000
\tat org.apache.spark.sql.errors.X(X.scala:1)
=== Streaming Query ===
"""
PLAIN_ERROR = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed:
moldau.spark.cluster.QueryFailed: the topic orders is gone. Create it, or
correct the option
 SQLSTATE: 38000
\tat org.apache.spark.sql.errors.X(X.scala:1)
=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SPARK_ERROR, "the topic orders is gone"),
        (PLAIN_ERROR, "the topic orders is gone. Create it, or correct the option"),
        ("[X.Y] A table is missing. SQLSTATE: 42P01;\n'Project [x]", "A table is missing.;"),
        (
            "Job aborted due to stage failure: Task 0 failed\nTraceback (most recent call last):\n  File x\n"
            "ValueError: no such\nproduct\n\n\tat java.base",
            "ValueError: no such product",
        ),
        (
            "Writing job aborted.\n\tat x\nCaused by: java.io.IOException: disk is full\n\tat y",
            "disk is full",
        ),
        ("", ""),
    ],
)
def test_one_sentence(text: str, sentence: str) -> None:
    assert root_cause(text) == sentence


def test_a_long_one_is_cut() -> None:
    assert len(root_cause("x" * 10_000)) == 400


def test_an_exception_without_a_word() -> None:
    assert describe_exception(ValueError()) == "ValueError"
    assert describe_exception(KeyError("x")) == "KeyError: 'x'"
