"""Copies between a job's arrays and checkpoints, with all arrays in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from diffusing_workload import Diffusion, DiffusionParams

from hetsched.engine.run.saves import PARTIALS, SAVED, StateFiles
from hetsched.errors import CantCreate, DataError
from hetsched.iterations.home import state_shape
from hetsched.iterations.partials import partials_shape

WORKLOAD, PARAMS = Diffusion(), DiffusionParams()
SLOTS = 2


def files(seed: int = 5) -> StateFiles:
    """Return those of a job whose arrays are random."""
    chance = np.random.default_rng(seed)
    x = np.random.default_rng(1).standard_normal((24, 4))
    arrays = {"x": x, "y": np.zeros((24, 4))}
    for array in WORKLOAD.state(PARAMS):
        arrays[array.name] = chance.standard_normal(state_shape(array, 24))
    for reduction in WORKLOAD.reductions(PARAMS):
        shape = partials_shape(reduction, SLOTS)
        arrays[PARTIALS + reduction.name] = chance.standard_normal(shape)
    return StateFiles(WORKLOAD, PARAMS, WORKLOAD.arrays(PARAMS), arrays, {})


def test_values_are_combined_in_the_order_of_rows() -> None:
    made = files()

    values = made.home(3, (1, 0)).values

    partials = {name: made.arrays[PARTIALS + name] for name in values}
    np.testing.assert_allclose(values["total"], partials["total"][1, :2].sum(axis=0))
    assert values["change"] == partials["change"][1, :2].max()
    assert values["rounds"] == partials["rounds"][1, SLOTS], "only the start computes it"


@pytest.mark.parametrize("iteration", [4, 7])
def test_another_job_continues_with_the_same_state(tmp_path: Path, iteration: int) -> None:
    path, one, other = str(tmp_path / "job.ckpt"), files(5), files(6)
    saved = one.home(iteration, (0, 1))
    one.write(path, saved, 0.5)

    assert other.restore(path) == (iteration, 0.5)

    u = other.arrays["u"][iteration % 2]
    np.testing.assert_array_equal(u[1:-1], one.arrays["u"][iteration % 2, 1:-1])
    np.testing.assert_array_equal(u[[0, -1]], u[[-2, 1]], "periodic borders")
    for name, value in saved.values.items():
        for parity in (0, 1):
            np.testing.assert_array_equal(other.arrays[PARTIALS + name][parity, SLOTS], value)


def test_what_devices_have_saved_is_written(tmp_path: Path) -> None:
    path, one, other = str(tmp_path / "job.ckpt"), files(5), files(6)
    saved = one.home(3, ())
    copies = {SAVED + name: view.copy() for name, view in saved.arrays.items()}
    one.arrays = {**one.arrays, **copies}
    one.arrays["u"][...] = 0  # iterations have gone on

    one.write(path, one.saved(3), 0.5)

    assert other.restore(path) == (3, 0.5)
    np.testing.assert_array_equal(other.arrays["u"][1][1:-1], one.arrays[SAVED + "u"])


def test_another_problem_is_neither_read_nor_overwritten(tmp_path: Path) -> None:
    path, one, other = str(tmp_path / "job.ckpt"), files(), files()
    one.write(path, one.home(3, (0, 1)), 0.5)
    other.arrays = {**other.arrays, "x": other.arrays["x"] + 1}

    with pytest.raises(DataError, match="input x has other values"):
        other.restore(path)
    with pytest.raises(CantCreate, match="input x has other values; it is not replaced"):
        other.write(path, other.home(3, (0, 1)), 0.5)
