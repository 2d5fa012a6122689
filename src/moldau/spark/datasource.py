"""MoldauDataSource: the Python data source behind `format("moldau")`. Imports readers and writers when needed."""

from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from moldau.base.settings import SettingsRefused
from moldau.spark.cluster import QueryFailed
from moldau.spark.defaults import with_defaults
from moldau.spark.plain_errors import plain_errors
from moldau.spark.row_columns import ONE_OF_BOTH, record_columns, registered_record, value_type
from moldau.spark.value_formats import REGISTRY_FORMATS, registered_columns
from moldau.spark.versions import version_error

if TYPE_CHECKING:
    from moldau.spark.sink.writers import BatchWriter, StreamWriter
    from moldau.spark.source.batch import BatchReader
    from moldau.spark.source.refused_stream import RefusedStream
    from moldau.spark.source.row_reader import RowReader
    from moldau.spark.source.stream import StreamReader


class MoldauDataSource(DataSource):
    """Columns and options are those of Spark's Kafka source and sink (options.py)."""

    def __init__(self, options: dict[str, str]) -> None:
        wrong = version_error(pyspark.__version__)
        if wrong:
            raise RuntimeError(wrong)
        super().__init__(with_defaults(options))

    @classmethod
    def name(cls) -> str:
        return "moldau"

    @plain_errors()
    def schema(self) -> "str | StructType":
        """Schema of a query without `.schema(…)`."""
        options = {name.lower(): str(value) for name, value in self.options.items()}
        headers = options.get("includeheaders", "").strip().lower() == "true"
        if "decode" not in options:
            return record_columns(headers=headers)
        if "valueschema" in options:
            return record_columns(headers=headers, value=value_type(options["valueschema"]))
        if options["decode"].strip().lower() not in REGISTRY_FORMATS:
            raise QueryFailed(ONE_OF_BOTH)
        from moldau.spark.options import registered_subject

        columns = registered_columns(*registered_subject(with_defaults(self.options)))
        return registered_record(columns, headers=headers)

    @plain_errors()
    def reader(self, schema: StructType) -> "BatchReader":
        from moldau.spark.source.batch import BatchReader

        return BatchReader(self._row_reader(schema, stream=False))

    def streamReader(self, schema: StructType) -> "StreamReader | RefusedStream":  # noqa: N802
        from moldau.spark.source.refused_stream import RefusedStream
        from moldau.spark.source.stream import StreamReader

        try:
            return StreamReader(self._row_reader(schema, stream=True))
        except (QueryFailed, SettingsRefused) as refused:
            return RefusedStream(refused)

    @plain_errors()
    def writer(self, schema: Any, overwrite: bool) -> "BatchWriter":
        """Writer of `df.write`."""
        from moldau.spark.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    @plain_errors()
    def streamWriter(self, schema: Any, overwrite: bool) -> "StreamWriter":  # noqa: N802  # Spark's name
        """Writer of `df.writeStream`, made for each batch."""
        from moldau.spark.sink.writers import stream_writer

        return stream_writer(self.options, schema)

    def _row_reader(self, schema: StructType, *, stream: bool) -> "RowReader":
        from moldau.spark.options import read_options
        from moldau.spark.source.row_reader import row_reader

        options = read_options(with_defaults(self.options, stream=stream), stream=stream)
        return row_reader(options, schema)
