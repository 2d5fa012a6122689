"""A real broker that hides the coordinator of each group whose name begins with `hidden`, for the first `TIMES` asks.

Started as `python -m support.brokers.hidden_coordinators` with the arguments of `moldau.testing.serve`.
"""

import sys
from collections import Counter
from typing import Any

from moldau import compiled

if compiled.modules in sys.meta_path:
    sys.meta_path.remove(compiled.modules)  # compiled functions cannot be replaced

from moldau.base.errors import WireError
from moldau.broker.apis import find_coordinator
from moldau.testing import serve

TIMES = 8  # more often than librdkafka asks again
asked: Counter[str] = Counter()
real_coordinator = find_coordinator._coordinator


def hide(image: Any, topic: str, key: str, listener: str) -> Any:
    if key.startswith("hidden"):
        asked[key] += 1
        if asked[key] <= TIMES:
            return find_coordinator._none(key, WireError.COORDINATOR_NOT_AVAILABLE)
    return real_coordinator(image, topic, key, listener)


if __name__ == "__main__":
    setattr(find_coordinator, "_coordinator", hide)  # noqa: B010 - mypy rightly refuses the assignment
    serve.main()
