"""Comparison of schemas that contain themselves: a pair is compared once, and taken as compatible inside itself.

That is what recursive types mean, and it is sound only if no verdict outlives the assumption that it rests on:
verdicts of a trial that failed are forgotten if a recursion was cut in it.
"""

from collections.abc import Callable

from moldau.schemas.rules import TOO_COMPLEX, Difference, Differences

MAX_COMPARISONS = 40_000  # of pairs in one comparison of two schemas; a trial is one more
MAX_DEPTH = 48  # of pairs in pairs


class Pairs:
    """Verdicts about pairs of subschemas in one comparison. The subschemas must live as long."""

    def __init__(self) -> None:
        self._open: set[tuple[int, int]] = set()
        self._known: dict[tuple[int, int], tuple[Difference, ...]] = {}
        self._order: list[tuple[int, int]] = []
        self._cuts = 0
        self._comparisons = 0
        self.exhausted = False  # whether a limit was reached, maybe in a trial that nobody hears of

    def compare(
        self, left: object, right: object, path: str, out: Differences, body: Callable[[Differences], None]
    ) -> None:
        """Add to `out` what `body` finds about the pair, with paths relative to it."""
        key = (id(left), id(right))
        if key in self._open:
            self._cuts += 1
            return
        known = self._known.get(key)
        if known is None:
            self._comparisons += 1
            if self._comparisons > MAX_COMPARISONS or len(self._open) >= MAX_DEPTH:
                self.exhausted = True
                out.add(TOO_COMPLEX, path)
                return
            inner = Differences(out.rules)
            self._open.add(key)
            body(inner)
            self._open.discard(key)
            known = self._known[key] = tuple(inner.found)
            self._order.append(key)
        out.add_all(known, path)

    def trial(self, out: Differences, attempt: Callable[[Differences], None]) -> Differences:
        """What an attempt finds, apart from `out`."""
        cuts, mark = self._cuts, len(self._order)
        trial = Differences(out.rules)
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            self.exhausted = True
        if self.exhausted:
            trial.add(TOO_COMPLEX, "")
            return trial
        attempt(trial)
        if self._cuts > cuts and not trial.compatible:
            for key in self._order[mark:]:
                if not any(difference.rule.breaks for difference in self._known[key]):
                    del self._known[key]
            self._order[mark:] = [key for key in self._order[mark:] if key in self._known]
        return trial

    def finish(self, out: Differences) -> None:
        """Say in `out` that a limit was reached, if the limit hid in a trial."""
        if self.exhausted:
            out.found.insert(0, Difference(out.rules[TOO_COMPLEX], ""))
