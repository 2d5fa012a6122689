"""MuteReason: why a connection does not handle requests for now, what sets each reason and what clears it.

A connection is muted while it has any reason: it handles no request and reads none, while responses still leave. It
resumes by itself when its last reason is cleared. Methods are those of `Connection`:

| reason            | set by           | cleared by                                  |
|-------------------|------------------|---------------------------------------------|
| `SOCKET_FULL`     | `_wait_writable` | `_writable`                                 |
| `COLD_READ`       | `_warm`          | `_warmed`                                   |
| `REQUEST_RUNNING` | `_handle`        | `_run`                                      |
| `REPLIES_PENDING` | `_append`        | `_release_replies`                          |
| `BROKER_BUSY`     | `_pause_reading` | `slot_granted`, called by `RequestLimits`   |
| `THROTTLED`       | `throttle`       | `_throttle_ended`, at the end time          |
| `NO_MEMORY`       | `_reserve`       | `memory_granted`, called by `RequestLimits` |
| `TURN_OVER`       | `_end_turn`      | `_next_turn`                                |
| `AUTHENTICATING`  | `hold`           | `release`; both are called by the rim       |

The reasons that keep responses back (`SOCKET_FULL`, `COLD_READ`, `TURN_OVER`) end soon, and most clients send nothing
meanwhile: the channel goes on waiting for requests, and stops only when one comes (`_readable`).
"""

from enum import Enum


class MuteReason(Enum):
    """The values are bits: a connection keeps its reasons in one integer."""

    SOCKET_FULL = 1  # the client does not take its responses
    COLD_READ = 2  # a thread reads a slice of the log that is not in the page cache
    REQUEST_RUNNING = 4  # a request runs as a task: Kafka handles the requests of a connection one after the other
    REPLIES_PENDING = 8  # too many responses, or bytes of them, wait behind a parked one
    BROKER_BUSY = 16  # queued.max.requests are running, or the broker is stopping
    THROTTLED = 32  # over a quota, until an end time
    NO_MEMORY = 64  # queued.max.request.bytes are taken; requests that came whole before are still handled
    TURN_OVER = 128  # it has sent its share of this turn of the loop; others come first
    AUTHENTICATING = 256  # a password is being hashed, or a failed login waits for its response
