"""A job that continues from saved state computes the same as one that ran through."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from diffusing_workload import Diffusion, DiffusionParams
from hypothesis import given
from hypothesis import strategies as st

from hetsched.iterations.saved_state import saved_names, saved_shapes, value_shapes
from hetsched.iterations.serial import run
from hetsched.workload import Stage, StateArray

WORKLOAD = Diffusion()
X = np.random.default_rng(5).standard_normal((24, 4))
SPLITS = st.tuples(st.integers(0, 24), st.integers(0, 24)).map(
    lambda cuts: (min(cuts), max(cuts) - min(cuts), 24 - max(cuts))
)


@given(
    border=st.sampled_from(["periodic", "reflect", "fixed"]),
    after=st.integers(0, 10),
    splits=st.tuples(SPLITS, SPLITS),
)
def test_a_resumed_run_gives_the_same_bits(
    border: str, after: int, splits: tuple[Sequence[int], Sequence[int]]
) -> None:
    params = DiffusionParams(border=border)
    whole = run(WORKLOAD, params, {"x": X}, lambda k: splits[k > after], save_after=after)
    assert whole.saved is not None

    resumed = run(WORKLOAD, params, {"x": X}, splits[1], resume=whole.saved)

    np.testing.assert_array_equal(resumed.outputs["y"], whole.outputs["y"])
    assert resumed.residuals == whole.residuals[after:]
    assert resumed.iterations == 10


def test_all_values_are_saved_those_of_the_start_too() -> None:
    saved = run(WORKLOAD, DiffusionParams(), {"x": X}, (24,), save_after=4).saved
    assert saved is not None

    assert {n: (v.shape, v.dtype.name) for n, v in saved.values.items()} == value_shapes(
        WORKLOAD, DiffusionParams()
    )
    assert saved.values["rounds"] == 3


def test_scratch_and_results_are_not_saved() -> None:
    assert saved_shapes(WORKLOAD, DiffusionParams()) == {"u": ((24, 4), "float64")}


class Preconditioned(Diffusion):
    """With one-buffer arrays: `means` is read before it is written, `once` only by finish."""

    def state(self, p: DiffusionParams) -> Sequence[StateArray]:
        return (*super().state(p), StateArray("once", (), "float64", has_two_buffers=False))

    def start(self, p: DiffusionParams) -> Sequence[Stage]:
        return (Stage("copy", ("x",), ("u", "means", "once")),)

    def iteration(self, p: DiffusionParams) -> Sequence[Stage]:
        return tuple(reversed(super().iteration(p)))

    def finish(self, p: DiffusionParams) -> Sequence[Stage]:
        return (Stage("result", ("u", "once"), ("y",)),)


class WritesEarly(Diffusion):
    """Its result is written by each iteration."""

    def iteration(self, p: DiffusionParams) -> Sequence[Stage]:
        return (Stage("mean", ("u",), ("means", "y")), Stage("smooth", ("u", "means"), ("u",)))

    def finish(self, p: DiffusionParams) -> Sequence[Stage]:
        return ()


@pytest.mark.parametrize(
    ("workload", "names"),
    [(Preconditioned(), ("u", "means", "once")), (WritesEarly(), ("u", "y"))],
)
def test_what_is_read_later_is_saved(workload: Diffusion, names: tuple[str, ...]) -> None:
    assert saved_names(workload, DiffusionParams()) == names
