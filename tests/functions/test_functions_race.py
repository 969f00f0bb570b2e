"""Of several functions that compute the same, the fastest computes most blocks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hetsched.functions.race import RETRY_BLOCKS, Race
from hetsched.functions.run import divided


def winners(race: Race, seconds: list[float], blocks: int) -> Counter[int]:
    chosen: Counter[int] = Counter()
    for _ in range(blocks):
        number = race.choose()
        chosen[number] += 1
        race.note(number, seconds[number])
    return chosen


def test_the_fastest_computes_nearly_all_blocks_and_others_are_tried_again() -> None:
    race = Race(3)
    assert winners(race, [3.0, 1.0, 2.0], 1000).most_common(1)[0] == (1, pytest.approx(990, abs=8))

    winners(race, [0.5, 1.0, 2.0], 12 * RETRY_BLOCKS)  # another one is faster now

    assert winners(race, [0.5, 1.0, 2.0], 100)[0] > 95


def test_one_that_fails_is_left_out_and_the_first_stays() -> None:
    race = Race(2)
    race.leave(1)
    race.leave(0)
    assert winners(race, [1.0, 0.0], 50) == {0: 50}


@pytest.mark.usefixtures("engine")
def test_blocks_of_an_alternative_that_fails_are_computed_by_the_function() -> None:
    def fails(block: np.ndarray, out: np.ndarray) -> None:
        out[...] = -1
        raise ZeroDivisionError

    def works(block: np.ndarray, out: np.ndarray) -> None:
        np.multiply(block, 2, out=out)

    x = np.arange(600_000.0).reshape(1000, 600)
    for alternatives in ([fails, works], [works]):
        for axis in (0, 1):
            y, _ = divided(
                lambda block: 2 * block, x, axis=axis, identity=f"{len(alternatives)} {axis}",
                always=True, alternatives=alternatives,
            )  # fmt: skip
            np.testing.assert_array_equal(y, 2 * x)
