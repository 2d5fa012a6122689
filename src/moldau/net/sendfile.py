"""Sends a slice of a file to a socket without copying it, and says beforehand whether that would wait for the disk.

`sendfile` blocks on pages that are not in the page cache, however the socket is set. So a slice that was not written
a moment ago is probed first, and a cold one is read once in a thread before the loop sends it.
"""

import errno
import os

from moldau.base.slices import FileSlice
from moldau.net.reply import Parts

PROBE_STEP = 256 * 1024  # the kernel reads ahead in windows of this order: one probe answers for one window
GATHERED_AT_MOST = 64 * 1024  # bytes of an answer that is copied rather than sent as slices
WARM_STEP = 256 * 1024
WARM_AT_MOST = 512 * 1024  # what is probed, or read by one thread call, before the loop sends it

_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_probe_byte = bytearray(1)


def next_stop(slice_: FileSlice, sent: int) -> int:
    """Up to where the slice is probed, warmed and sent in one go, once `sent` bytes of it have left."""
    return min(slice_.length, sent + WARM_AT_MOST)


def would_block(slice_: FileSlice, sent: int, until: int) -> bool:
    """Whether a probed page of what is to be sent next is not in memory; False where the system cannot tell."""
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
                return False  # a file system without the flag: nothing better is known than to go on
            raise
    return False


def warm(slice_: FileSlice, sent: int, until: int) -> None:
    """Read a stretch of the slice into the page cache. Blocks on the disk: for a thread, never for the loop."""
    start = slice_.position + sent
    stop = slice_.position + until
    buffer = bytearray(min(WARM_STEP, stop - start))
    while start < stop:
        count = os.preadv(slice_.file.fd, [buffer], start)
        if count == 0:
            return  # the file was cut: sending will meet the same end
        start += count


def gathered(parts: Parts) -> Parts:
    """A small answer out of what was just written as one buffer: copying it costs less than sending it in pieces."""
    size = 0
    for part in parts:
        if isinstance(part, (bytes, bytearray)):
            size += len(part)
        elif part.hot:
            size += part.length
        else:
            return parts
        if size > GATHERED_AT_MOST:
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
                return parts  # sending the slice meets the same trouble, and ends the connection
            if count != part.length:
                return parts  # cut meanwhile: sending the slice will say so
        at = stop
    return [out]


def send_slice(out: int, slice_: FileSlice, sent: int, until: int) -> int:
    """Send what the socket takes now; raises BlockingIOError when it takes nothing. 0: the file ended early."""
    return os.sendfile(out, slice_.file.fd, slice_.position + sent, until - sent)
