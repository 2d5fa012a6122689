"""CRC-32C, the checksum of record batches: the C function of the package crc32c, without its Python part.

The package imports importlib.metadata to know its own version, and with it email, zipfile and argparse: a twentieth of
a broker's start and of its memory.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final, Protocol


class Crc32c(Protocol):
    def __call__(self, data: bytes | bytearray | memoryview, crc: int = 0, /) -> int:
        """The checksum of `data`, or of what has the checksum `crc` and `data` behind it."""


def _load() -> Crc32c:
    package = find_spec("crc32c")
    extension = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if not extension or extension.loader is None:
        raise ImportError("the package crc32c is missing, or is another version than the one that Moldau requires")
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    function: Crc32c = module.crc32c
    return function


crc32c: Final = _load()
