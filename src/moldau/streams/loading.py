"""Files with programs: `load_app` runs one as Python, and finds its Streams."""

from collections.abc import Sequence

from moldau.spark.pipelines.directory import absolute
from moldau.spark.pipelines.errors import PipelineFileError
from moldau.spark.pipelines.script import load_module
from moldau.streams.app import Streams

EXAMPLE = 'app = Streams("revenue")'


def load_app(file: str, arguments: Sequence[str] = ()) -> Streams:
    """The one Streams of a file; raises PipelineFileError."""
    path = absolute(file)
    module = load_module(file, arguments)
    apps = list({id(each): each for each in vars(module).values() if isinstance(each, Streams)}.values())
    if not apps:
        raise PipelineFileError(f"{path} has no program. Give it one: {EXAMPLE}")
    if len(apps) > 1:
        names = ", ".join(each.name for each in apps)
        raise PipelineFileError(f"{path} has several programs: {names}. Put each into a file of its own")
    return apps[0]
