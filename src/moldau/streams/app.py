"""`Streams`: a program, from its inputs to what runs it."""

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from moldau.streams.sql.parser import Scope, parse
from moldau.streams.sql.types import STRING, TIMESTAMP
from moldau.streams.topology.building import Building, check_topic
from moldau.streams.topology.formats import format_of, raw, string
from moldau.streams.topology.mappers import Place, Text
from moldau.streams.topology.nodes import Kind, Shape, Source, Topology
from moldau.streams.topology.stream import KStream
from moldau.streams.topology.table import GlobalKTable, KTable

if TYPE_CHECKING:
    from moldau.streams.interpreter.driver import TestDriver


class Clock(Enum):
    """Times that no field of the value has."""

    RECORD = "record"
    PROCESSING = "processing"


record_time: Final = (
    Clock.RECORD
)  # the record's timestamp: when it was made, or when it came to a topic with LogAppendTime
processing_time: Final = Clock.PROCESSING  # when the record is processed


class Streams:
    """An application: streams and tables of topics, and what becomes of them.

    `name` is that of its queries, checkpoints and internal topics: two applications need two names.
    """

    def __init__(self, name: str, *, bootstrap: str = "") -> None:
        self._building = Building(name)
        self.name = name
        self.bootstrap = bootstrap

    def __repr__(self) -> str:
        return f"Streams({self.name!r})"

    def stream(
        self, topic: str, *, key: object = string, value: object = raw, time: Text | Clock = record_time
    ) -> KStream:
        """A topic as a stream of records. `time` is when they happened: an SQL expression, or one of the two clocks."""
        return KStream(self._building, self._source(Kind.STREAM, topic, key, value, time))

    def table(self, topic: str, *, key: object = string, value: object = raw) -> KTable:
        """A topic as a table: the newest record of each key is its row, and one without a value deletes it."""
        return KTable(self._building, self._source(Kind.TABLE, topic, key, value, record_time))

    def global_table(self, topic: str, *, key: object = string, value: object = raw) -> GlobalKTable:
        """A topic as a table that each task has whole."""
        return GlobalKTable(self._building, self._source(Kind.GLOBAL, topic, key, value, record_time))

    def dead_letters(self, topic: str) -> None:
        """Where records go that do not match their schema, with the reason in headers; else they stop the query."""
        check_topic(topic)
        self._building.dead_letters = topic

    @property
    def topology(self) -> Topology:
        """The program as a value."""
        return self._building.topology()

    def describe(self) -> str:
        """The topology as text: queries, operators, topics and types."""
        from moldau.streams.topology.describe import describe

        return describe(self.topology)

    def svg(self) -> str:
        """The topology as a picture."""
        from moldau.streams.topology.svg import draw

        return draw(self.topology)

    def test(self, *, engine: Literal["python", "spark"] = "python", spark: Any = None) -> "TestDriver":
        """Drive the program without a broker: send records, and read results.

        In Python it takes milliseconds. With `engine="spark"` Spark's own operators run, in the session `spark` or in a
        new one; call `close()` at the end.
        """
        from moldau.streams.interpreter.driver import TestDriver

        if engine == "python":
            return TestDriver(self.topology)
        from moldau.spark import session
        from moldau.streams.compiler.testing import SparkEngine

        running = spark or session(self.name, "local[2]", **{"spark.ui.enabled": False})
        return TestDriver(self.topology, SparkEngine(self.topology, running))

    def run(
        self, *, master: str = "local[*]", directory: str = "./data", start: str = "earliest", **settings: object
    ) -> None:
        """Run the program on Spark in this process, until a query fails or it is interrupted (Ctrl-C).

        `start` is where a query without a checkpoint begins: earliest or latest. Settings are those of
        `moldau.spark.session`. `moldau streams run FILE.py` does the same with a status that others can read.
        """
        from moldau.streams.compiler.program import run_here

        run_here(self, master, directory, start, settings)

    def _source(self, kind: Kind, topic: str, key: object, value: object, time: Text | Clock) -> Source:
        place = Place(kind.value, str(topic))
        keys, values = format_of(key, f"the key of {topic}"), format_of(value, f"the value of {topic}")
        shape = Shape(kind, keys.type, values.type, values.model)
        more: dict[str, Any] = {"key": keys, "value": values}
        if time is processing_time:
            more["processing_time"] = True
        elif not isinstance(time, Clock):
            read = place.check(lambda: parse(time, Scope(shape.roots())))
            if read.type != TIMESTAMP:
                hint = (
                    ". Milliseconds since 1970: timestamp_millis(…)"
                    if read.type != STRING
                    else ". Declare the field as timestamp"
                )
                raise place.refused(f"time={time!r} is a {read.type}, not a timestamp{hint}")
            more["time"] = read
        return self._building.add_source(topic, shape, **more)
