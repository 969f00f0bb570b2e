"""Of two functions that compute the same, the faster one computes most blocks."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched.functions.call import RETRY_BLOCKS, Race
from hetsched.functions.run import divided


def others_blocks(race: Race, own: float, other: float, blocks: int) -> int:
    count = 0
    for _ in range(blocks):
        is_other = race.is_others_turn()
        race.note(is_other, other if is_other else own)
        count += is_other
    return count


def test_the_faster_one_computes_nearly_all_blocks_and_the_other_is_tried_again() -> None:
    race = Race()
    assert others_blocks(race, 3.0, 1.0, 1000) == pytest.approx(995, abs=3)

    others_blocks(race, 0.5, 1.0, 4 * RETRY_BLOCKS)  # the other way round now

    assert others_blocks(race, 0.5, 1.0, 100) < 5


@pytest.mark.usefixtures("engine")
def test_blocks_without_an_alternative_that_works_are_computed_by_the_function() -> None:
    def fails(block: np.ndarray, out: np.ndarray) -> None:
        out[...] = -1
        raise ZeroDivisionError

    def works(block: np.ndarray, out: np.ndarray) -> None:
        np.multiply(block, 2, out=out)

    x = np.arange(600_000.0).reshape(1000, 600)
    for kind, alternative in [("1", fails), ("2", works), ("2", None), ("2", None)]:
        for axis in (0, 1):
            y, _ = divided(
                lambda block: 2 * block, x, axis=axis, identity=f"{kind} {axis}",
                always=True, alternative=alternative,
            )  # fmt: skip
            np.testing.assert_array_equal(y, 2 * x)
