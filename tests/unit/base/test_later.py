"""Results that come later: kept until somebody listens, told once, combined when the last has come."""

from moldau.base.later import Later, chain, gather


def heard(later: Later[int]) -> list[int]:
    results: list[int] = []
    later.then(results.append)
    return results


def test_a_listener_gets_the_result_when_it_comes() -> None:
    later: Later[int] = Later()
    results = heard(later)
    assert results == []
    later.resolve(7)
    assert results == [7]


def test_a_result_that_comes_before_the_listener_is_kept() -> None:
    later: Later[int] = Later()
    later.resolve(7)
    assert heard(later) == [7]


def test_only_the_first_result_counts() -> None:
    later: Later[int] = Later()
    results = heard(later)
    later.resolve(7)
    later.resolve(8)
    assert results == [7]
    assert later.result == 7


def test_a_forgotten_listener_hears_nothing() -> None:
    later: Later[int] = Later()
    results = heard(later)
    later.forget()
    later.resolve(7)
    assert results == []


def test_parts_that_are_there_are_combined_at_once() -> None:
    assert gather([1, 2], sum) == 3


def test_pending_parts_are_combined_in_their_places() -> None:
    first: Later[int] = Later()
    last: Later[int] = Later()
    combined = gather([first, 2, last], list)
    assert isinstance(combined, Later)
    last.resolve(3)
    assert not combined.done
    first.resolve(1)
    assert combined.result == [1, 2, 3]


def test_parts_that_were_resolved_before_are_combined_at_once() -> None:
    early: Later[int] = Later()
    early.resolve(1)
    assert gather([early, 2], sum) == 3


def test_a_combination_may_itself_come_later() -> None:
    part: Later[int] = Later()
    inner: Later[str] = Later()
    combined = chain(part, lambda _: inner)
    assert isinstance(combined, Later)
    part.resolve(1)
    assert not combined.done
    inner.resolve("done")
    assert combined.result == "done"
