"""Pools of descriptors: what google.protobuf decodes with, and its verdict on a schema."""

from google.protobuf.descriptor_pool import DescriptorPool

from moldau.schemas.protobuf.linking import Linked
from moldau.schemas.protobuf.lowering import lower_file
from moldau.schemas.schema import InvalidSchema


def build_pool(linked: Linked) -> DescriptorPool:
    """A pool of a file and its imports, or InvalidSchema for what Protobuf itself refuses."""
    pool = DescriptorPool()
    for name in linked.files:
        try:
            pool.Add(lower_file(name, linked))
        except TypeError as error:  # so says Protobuf
            raise InvalidSchema(str(error)) from None
    return pool
