"""RefusedStream: stands in for a stream reader whose options are refused, and raises that error when Spark asks it.

PySpark reports an error of `streamReader` itself as a failure of its own, with ours at the end of a traceback.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from moldau.spark.plain_errors import plain_errors


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Every call raises the error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @plain_errors()
    def _refuse(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()
