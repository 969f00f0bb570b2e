"""Results of iterative workloads don't depend on how the rows are split."""

from __future__ import annotations

import numpy as np
import pytest
from diffusing_workload import Diffusion, DiffusionParams, diffused

from hetsched.errors import DataError
from hetsched.iterations.serial import run

WORKLOAD = Diffusion()
X = np.random.default_rng(5).standard_normal((24, 4))


def moving_split(iteration: int) -> tuple[int, ...]:
    """Rows of three devices, others after each iteration; one has none now and then."""
    first = (7 * iteration) % 24
    return first, 24 - first, 0


@pytest.mark.parametrize("border", ["periodic", "reflect", "fixed"])
@pytest.mark.parametrize("split", [(24,), (11, 13), (1, 22, 1), (12, 0, 12), moving_split])
def test_a_split_does_not_change_the_result(border: str, split: object) -> None:
    params = DiffusionParams(border=border)

    result = run(WORKLOAD, params, {"x": X}, split)  # type: ignore[arg-type]

    np.testing.assert_allclose(result.outputs["y"], diffused(params, X)[0], atol=1e-12)
    assert result.iterations == 10


def test_it_ends_when_it_has_converged() -> None:
    params = DiffusionParams(iterations=1000, tolerance=1e-2)

    result = run(WORKLOAD, params, {"x": X}, (10, 14))

    expected, iterations = diffused(params, X)
    np.testing.assert_allclose(result.outputs["y"], expected, atol=1e-12)
    assert result.converged
    assert result.iterations == len(result.residuals) == iterations < 1000
    assert result.residuals[-1] <= 1e-2 < result.residuals[-2]


def test_inputs_without_data_are_generated() -> None:
    params = DiffusionParams()
    x = np.empty((24, 4))
    WORKLOAD.generate(params, 0, "x", 0, x)

    result = run(WORKLOAD, params, {}, (24,))

    np.testing.assert_allclose(result.outputs["y"], diffused(params, x)[0], atol=1e-12)


def test_bad_data_end_the_run() -> None:
    with pytest.raises(DataError, match="row 0 is bad"):
        run(WORKLOAD, DiffusionParams(is_bad=True), {"x": X}, (12, 12))


def test_an_output_that_is_not_split_is_written_by_the_device_with_the_first_row() -> None:
    params = DiffusionParams(iterations=1)

    result = run(WORKLOAD, params, {"x": X}, (0, 10, 14))

    np.testing.assert_allclose(result.outputs["totals"], X.sum(axis=0), atol=1e-12)
