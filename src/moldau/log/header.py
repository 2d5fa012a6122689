"""The header of a batch as `HEADER.unpack` gives it: on the hot path a plain tuple, without names."""

# The fields of `moldau.wire.batch.BatchHeader`, in its order; either can be passed where this is asked for.
# Not a tuple of thirteen: compiled code would take that apart and put it together again at every call.
RawHeader = tuple[int, ...]
