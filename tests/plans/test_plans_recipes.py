"""Every recipe cuts every share exactly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hetsched.plans.search.recipes import Recipe

sizes = st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple)
ramps = st.lists(st.integers(1, 12), max_size=4, unique=True).map(lambda r: tuple(sorted(r)))


@given(sizes, ramps, ramps, st.integers(1, 300))
def test_the_chunks_add_up_and_none_exceeds_its_pattern(
    middle: tuple[int, ...], up: tuple[int, ...], down: tuple[int, ...], share: int
) -> None:
    chunks = Recipe(middle, 2, up, down).chunks(share)

    assert sum(chunks) == share
    assert min(chunks) >= 1 and max(chunks) <= max((*middle, *up, *down))


def test_a_pattern_repeats_and_its_last_turn_ends_early() -> None:
    assert Recipe((2, 3), 2).chunks(12) == (2, 3, 2, 3, 2)
    assert Recipe((2, 3), 2).chunks(11) == (2, 3, 2, 3, 1)
    assert Recipe((2, 3), 2).chunks(10) == (2, 3, 2, 3)
