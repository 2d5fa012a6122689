"""Slices of log segments before they are sent: probe the page cache, warm cold pages, coalesce small replies.

`sendfile` blocks on pages that are not in the page cache, even on a non-blocking socket. So a slice that is not hot is
probed first, and a cold one is read once in a thread before the loop sends it.
"""

import errno
import os
from typing import Final

from moldau.base.slices import FileSlice
from moldau.net.reply import Parts

WINDOW: Final = 1024 * 1024  # bytes that are probed, then sent with one call
SHORT_REST: Final = 256 * 1024  # of a slice, not worth a call of its own
COLD_WINDOW: Final = 512 * 1024  # bytes that one thread call reads, before the loop sends them
PROBE_STEP: Final = 256 * 1024  # the kernel reads ahead about as much: one probe tells about one step
WARM_STEP: Final = 256 * 1024
COALESCED_AT_MOST: Final = 64 * 1024  # bytes of a reply that is copied into one buffer rather than sent as slices

_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_probe_byte: Final = bytearray(1)


def window_end(slice_: FileSlice, sent: int) -> int:
    """Up to where the slice is probed and sent at once, after its first `sent` bytes. A short rest is included."""
    return slice_.length if slice_.length - sent <= WINDOW + SHORT_REST else sent + WINDOW


def cold_window_end(slice_: FileSlice, sent: int) -> int:
    """Up to where a thread reads the slice at once."""
    return min(slice_.length, sent + COLD_WINDOW)


def is_cold(slice_: FileSlice, sent: int, until: int) -> bool:
    """Whether a page of the window is not in the page cache; False where the system cannot tell."""
    if _NOWAIT is None:
        return False
    start = slice_.position + sent
    last = slice_.position + until - 1
    for probe in (*range(start, last, PROBE_STEP), last):
        try:
            os.preadv(slice_.file.fd, [_probe_byte], probe, _NOWAIT)
        except BlockingIOError:
            return True
        except OSError as problem:
            if problem.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                return False  # a file system without the flag
            raise
    return False


def warm(slice_: FileSlice, sent: int, until: int) -> None:
    """Read a window of the slice into the page cache. Blocks on the disk: call it in a thread."""
    start = slice_.position + sent
    stop = slice_.position + until
    buffer = bytearray(min(WARM_STEP, stop - start))
    while start < stop:
        count = os.preadv(slice_.file.fd, [buffer], start)
        if count == 0:
            return  # the file was truncated: sending the slice finds that out
        start += count


def coalesce(parts: Parts) -> Parts:
    """Copy a small reply of hot slices into one buffer: that costs less than sending it in pieces."""
    size = 0
    for part in parts:
        if isinstance(part, (bytes, bytearray)):
            size += len(part)
        elif part.hot:
            size += part.length
        else:
            return parts
        if size > COALESCED_AT_MOST:
            return parts
    out = bytearray(size)
    view = memoryview(out)
    at = 0
    for part in parts:
        if isinstance(part, (bytes, bytearray)):
            stop = at + len(part)
            view[at:stop] = part
        else:
            stop = at + part.length
            try:
                count = os.preadv(part.file.fd, [view[at:stop]], part.position)
            except OSError:
                return parts  # sending the slice fails in the same way, and closes the connection
            if count != part.length:
                return parts  # truncated: sending the slice finds that out
        at = stop
    return [out]
