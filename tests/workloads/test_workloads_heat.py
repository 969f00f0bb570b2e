from __future__ import annotations

import numpy as np
import pytest
from hetsched_workloads.heat import Heat, HeatParams
from hetsched_workloads.heat.kernels import reference
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError
from hetsched.iterations.serial import SerialResult, run
from hetsched.workload import Rows

WORKLOAD = Heat()
VARIANTS = [variant.name for variant in WORKLOAD.variants("cpu")]
BORDERS = ("periodic", "dirichlet", "neumann")


def field(p: HeatParams) -> np.ndarray:
    u = np.empty(p.shape, p.dtype)
    WORKLOAD.generate(p, 3, "initial", 0, u)
    return u


def solve(p: HeatParams, u: np.ndarray, *split: int, variant: str = "numpy") -> SerialResult:
    return run(WORKLOAD, p, {"initial": u}, split or (len(u),), variant=variant)


@given(
    st.integers(1, 12),
    st.integers(1, 8),
    st.sampled_from(("float32", "float64")),
    st.data(),
    st.booleans(),
)
def test_any_split_and_variant_gives_the_same_bits_of_the_exact_solution(
    rows: int, columns: int, dtype: str, data: st.DataObject, is_3d: bool
) -> None:
    first = data.draw(st.integers(0, rows))
    second = data.draw(st.integers(0, rows - first))
    grid = f"{rows}x{columns}x3" if is_3d else f"{rows}x{columns}"
    mixed = "neumann,periodic,dirichlet" if is_3d else "dirichlet,neumann"
    border = data.draw(st.sampled_from([*BORDERS, mixed]))
    p = HeatParams(grid, 5, border=border, border_value=1.0, dtype=dtype)
    u = field(p)

    results = [solve(p, u, variant=variant) for variant in VARIANTS]
    results.append(solve(p, u, first, second, rows - first - second))

    assert all(np.array_equal(r.outputs["final"], results[0].outputs["final"]) for r in results)
    whole = Rows(0, rows, rows)
    assert WORKLOAD.errors(p, {"initial": u}, results[0].outputs, whole, 0).max() <= 1


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("grid", ["12x10", "6x5x4"])
def test_it_stops_when_it_is_steady(grid: str, variant: str) -> None:
    p = HeatParams(grid, 100_000, border="dirichlet", tolerance=1e-6, dtype="float64")
    u = field(p)

    result = solve(p, u, 3, p.shape[0] - 3, variant=variant)

    assert result.converged
    assert result.residuals[-1] <= 1e-6 < result.residuals[-2]
    before, after = (reference(p, u, result.iterations - k) for k in (1, 0))
    assert result.residuals[-1] == pytest.approx(np.abs(after - before).max(), rel=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("place", "value"), [((4, 0), np.nan), ((9, 599), -np.inf)])
def test_a_value_that_is_not_finite_is_named(
    place: tuple[int, int], value: float, variant: str
) -> None:
    u = np.zeros((10, 600))
    u[place] = value

    with pytest.raises(DataError, match=f"row {place[0]} has"):
        solve(HeatParams("10x600", dtype="float64"), u, 3, 7, variant=variant)
