"""The plan cache: bounded, least recently used first out, and only with a key."""

import itertools

from hetsched.planner.plan_cache import ResultCache


def test_a_value_is_computed_once() -> None:
    cache: ResultCache[int] = ResultCache(2)
    numbers = itertools.count()
    assert [cache.get_or_compute("a", numbers.__next__) for _ in range(3)] == [0, 0, 0]


def test_the_least_recently_used_entry_is_dropped() -> None:
    cache: ResultCache[str] = ResultCache(2)
    for key in ("a", "b", "a", "c"):
        cache.get_or_compute(key, str)
    assert len(cache) == 2
    assert cache.get_or_compute("a", lambda: "again") == ""
    assert cache.get_or_compute("b", lambda: "again") == "again"


def test_without_a_key_a_value_is_computed_every_time() -> None:
    cache: ResultCache[int] = ResultCache(2)
    numbers = itertools.count()
    assert [cache.get_or_compute(None, numbers.__next__) for _ in range(3)] == [0, 1, 2]
    assert len(cache) == 0
