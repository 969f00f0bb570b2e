"""A mapping bounded in entries and bytes."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.bounded_cache import BoundedCache


def test_a_computation_that_fails_leaves_nothing() -> None:
    cache: BoundedCache[str, float] = BoundedCache()
    with pytest.raises(ZeroDivisionError):
        cache.get_or_compute("a", lambda: 1 / 0)
    assert len(cache) == 0 and cache.nbytes == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "get", "pop"]), st.integers(0, 5), st.integers(0, 40)),
        max_size=60,
    )
)
def test_it_equals_a_simple_model(steps: list[tuple[str, int, int]]) -> None:
    cache: BoundedCache[int, int] = BoundedCache(max_entries=4, max_bytes=100)
    model: OrderedDict[int, int] = OrderedDict()
    for step, key, size in steps:
        if step == "put":
            model.pop(key, None)
            model[key] = size
            dropped = []
            while len(model) > 1 and (len(model) > 4 or sum(model.values()) > 100):
                dropped.append(model.popitem(last=False)[1])
            assert cache.put(key, size, size) == dropped
        elif step == "get":
            if key in model:
                model.move_to_end(key)
            assert cache.get(key) == model.get(key)
        else:
            assert cache.pop(key) == model.pop(key, None)
        assert list(cache.items()) == list(model.items())
        assert cache.nbytes == sum(model.values())
