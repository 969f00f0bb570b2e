"""kmeans and heat continued from a saved state, with rows on other devices than before."""

from __future__ import annotations

import numpy as np
import pytest
from flow_cases import CASES

from hetsched.iterations.serial import run


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_resumed_job_gives_the_same_bits(name: str, after: int) -> None:
    workload, p = CASES[name]
    load = workload.load(p)
    before, then = (load // 4, load - load // 4), (load // 2, load - load // 2)

    def split(iteration: int) -> tuple[int, int]:
        return then if iteration > after else before

    whole = run(workload, p, {}, split, variant="numpy", save_after=after)

    resumed = run(workload, p, {}, then, variant="numpy", resume=whole.saved)
    assert resumed.iterations == whole.iterations > after
    for array, values in whole.outputs.items():
        np.testing.assert_array_equal(resumed.outputs[array], values)


@pytest.mark.parametrize("name", CASES)
def test_two_runs_give_the_same_bits(name: str) -> None:
    workload, p = CASES[name]
    load = workload.load(p)

    first, second = (run(workload, p, {}, (load // 3, load - load // 3)) for _ in range(2))

    assert first.residuals == second.residuals or np.isnan(first.residuals).all()
    for array, values in first.outputs.items():
        np.testing.assert_array_equal(second.outputs[array], values)
