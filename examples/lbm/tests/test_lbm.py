"""Flows: the same bits for any split, known solutions, and an independent reference.

`pytest` after `pip install .` here; hetsched's own tests do both in a fresh environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import hetsched_lbm
import msgspec
import numpy as np
import pytest
from hetsched_lbm import Lbm, LbmParams
from hetsched_lbm.snapshots import write

from hetsched.errors import DataError, UsageError
from hetsched.iterations.serial import SerialResult, run
from hetsched.testing import check_workload
from hetsched.workload import Rows, Values, find

WORKLOAD: Lbm = find("lbm")  # type: ignore[assignment] # by its entry point
VARIANTS = [variant.name for variant in WORKLOAD.variants("cpu")]


def solve(
    p: LbmParams, *split: int, mask: np.ndarray | None = None, variant: str = "numpy"
) -> SerialResult:
    inputs = {} if mask is None else {"mask": mask}
    return run(WORKLOAD, p, inputs, split or (p.rows,), variant=variant)


def worst(p: LbmParams, result: SerialResult, mask: np.ndarray | None = None) -> float:
    inputs = {} if mask is None else {"mask": mask}
    return float(WORKLOAD.errors(p, inputs, result.outputs, Rows(0, p.rows, p.rows), 0).max())


GHIA_Y = (0.0547, 0.1016, 0.1719, 0.2813, 0.4531, 0.5, 0.6172, 0.7344, 0.8516, 0.9531, 0.9766)
GHIA_ALONG = (-0.03717, -0.06434, -0.10150, -0.15662, -0.21090, -0.20581, -0.13641, 0.00332,
              0.23151, 0.68717, 0.84123)  # fmt: skip
"""Velocities along the vertical centre line for Re = 100, over that of the lid: Ghia, Ghia & Shin,
J. Comput. Phys. 48 (1982), table I."""


def test_a_cavity_agrees_with_ghia_and_others() -> None:
    p = LbmParams(32, 32, reynolds=100, steps=20_000, tolerance=1e-6)

    result = solve(p, 10, 22, variant=VARIANTS[0])

    assert result.converged
    along = result.outputs["velocity"][:, 15:17, 0].mean(axis=1) / p.speed
    heights = np.concatenate(([0], (np.arange(32) + 0.5) / 32, [1]))
    ours = np.interp(GHIA_Y, heights, np.concatenate(([0], along, [1])))
    np.testing.assert_allclose(ours, GHIA_ALONG, rtol=0, atol=0.015)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_closed_cavity_keeps_its_mass(variant: str) -> None:
    p = LbmParams(24, 40, reynolds=400, steps=5000)

    density = solve(p, 9, 15, variant=variant).outputs["density"]

    assert abs(density.sum() / density.size - 1) < 1e-10


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("reynolds", [10, 1000])
@pytest.mark.parametrize("steps", [1, 2500])
def test_an_empty_channel_has_a_parabolic_profile_from_the_start(
    steps: int, reynolds: float, variant: str
) -> None:
    p = LbmParams(20, 3, "channel", reynolds, steps=steps)
    y = np.arange(20) + 0.5

    velocity = solve(p, 9, 11, variant=variant).outputs["velocity"]

    np.testing.assert_allclose(velocity[:, 1, 0], 0.1 * 4 * y * (20 - y) / 400, atol=5e-4)
    np.testing.assert_allclose(velocity[..., 1], 0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("flow", ["cavity", "channel"])
@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("has_start", [False, True])
def test_it_keeps_what_workloads_promise(
    has_start: bool, has_mask: bool, flow: Any, dtype: str
) -> None:
    cols = 300 if has_start else 17  # of several blocks, and of one
    p = LbmParams(9, cols, flow, 20, steps=20, has_mask=has_mask, has_start=has_start, dtype=dtype)
    check_workload(WORKLOAD, p)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("flow", ["cavity", "channel"])
def test_any_split_gives_the_same_bits(flow: Any, variant: str) -> None:
    p = LbmParams(9, 300, flow, 10, steps=8, has_mask=True)
    mask = (np.random.default_rng(1).random((9, 300)) < 0.3).astype(np.uint8)
    whole = solve(p, mask=mask, variant=variant).outputs
    for step in range(10):
        splits = [(step * i % 10, 9 - step * i % 10) for i in range(9)]
        moved = run(WORKLOAD, p, {"mask": mask}, splits.__getitem__, variant=variant)
        assert all(np.array_equal(moved.outputs[name], whole[name]) for name in whole)


def test_a_flow_around_a_disc_is_slower_and_symmetric() -> None:
    p = LbmParams(24, 32, "channel", 10, steps=3000, has_mask=True)
    mask = np.zeros((24, 32), np.uint8)
    WORKLOAD.generate(p, 0, "mask", 0, mask)
    mask |= mask[::-1]

    velocity = solve(p, 10, 14, mask=mask).outputs["velocity"]

    np.testing.assert_allclose(velocity[::-1, :, 0], velocity[..., 0], atol=1e-12)
    assert (velocity[mask != 0] == 0).all()
    assert 0.01 < velocity[..., 0].max() < 0.08


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_stops_when_the_flow_is_steady(variant: str) -> None:
    p = LbmParams(8, 8, reynolds=10, steps=50_000, tolerance=1e-5)

    result = solve(p, 3, 5, variant=variant)

    assert result.converged
    assert result.residuals[-1] <= 1e-5 < result.residuals[-2]
    assert result.outputs["steps"].tolist() == [result.iterations]
    assert worst(p, result) <= 1


@pytest.mark.parametrize("tolerance", [0, 1e-9])
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_unstable_flow_says_so(variant: str, tolerance: float) -> None:
    p = LbmParams(16, 16, reynolds=1e6, speed=0.3, steps=100_000, tolerance=tolerance)

    with pytest.raises(DataError, match=r"unstable.*relaxation time 0\.5000.*more cells"):
        solve(p, 8, 8, variant=variant)


def test_a_flow_that_gains_mass_is_unstable_while_it_is_still_finite() -> None:
    p = LbmParams(10, 10, reynolds=1e9)
    now = {"steps": np.array(9.0), "excess": np.array(101.0)}

    with pytest.raises(DataError, match="unstable after 9 steps: mass was lost or gained"):
        WORKLOAD.converged(p, Values(now, now))
    assert not WORKLOAD.converged(p, Values({**now, "excess": np.array(-1e-9)}, now))


def test_a_long_run_is_checked_for_what_must_hold() -> None:
    p = LbmParams(4, 5, steps=10_000_000)
    outputs = {
        "density": np.ones((4, 5)),
        "velocity": np.zeros((4, 5, 2)),
        "steps": np.array([10_000_000]),
    }

    assert (WORKLOAD.errors(p, {}, outputs, Rows(0, 4, 4), 0) <= 1).all()
    outputs["velocity"][2, 2, 0] = np.nan
    assert (WORKLOAD.errors(p, {}, outputs, Rows(0, 4, 4), 0) > 1).tolist() == [0, 0, 1, 0]
    outputs["density"][0, 0] = 1.1
    assert (WORKLOAD.errors(p, {}, outputs, Rows(0, 4, 4), 0) > 1).all()


def test_a_mask_without_a_fluid_cell_is_refused() -> None:
    p = LbmParams(4, 5, has_mask=True)

    with pytest.raises(DataError, match="all cells are solid"):
        solve(p, mask=np.ones((4, 5), np.uint8))


def test_sizes_follow_from_the_mask() -> None:
    p = WORKLOAD.infer({"flow": "channel"}, {"mask": ((30, 50), "bool")})

    assert (p.rows, p.cols, p.has_mask, p.dtype) == (30, 50, True, "float64")


@pytest.mark.parametrize(
    ("explicit", "arrays", "error", "message"),
    [
        ({"rows": 4}, {}, UsageError, "needs cols"),
        ({"rows": 4, "cols": 0}, {}, UsageError, "cols: 0"),
        ({"rows": 4, "cols": 4, "flow": "chanel"}, {}, UsageError, "did you mean 'channel'"),
        ({"rows": 4, "cols": 4, "speed": 0.5}, {}, UsageError, "at most 0.3"),
        ({"rows": 4, "cols": 4, "reynolds": 0}, {}, UsageError, "reynolds"),
        ({"rows": 4, "cols": 4, "tolerance": "inf"}, {}, UsageError, "tolerance"),
        ({"rows": 5}, {"mask": ((4, 4), "bool")}, DataError, "job says 5"),
        ({}, {"mask": ((4, 4, 3), "uint8")}, DataError, "two axes"),
        ({}, {"mask": ((4, 4), "float32")}, DataError, "bool or uint8"),
    ],
)
def test_bad_parameters_get_a_clear_line(
    explicit: dict[str, Any], arrays: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        WORKLOAD.infer(explicit, arrays)


def test_a_flow_goes_on_from_its_populations() -> None:
    p = LbmParams(12, 9, "channel", 10, steps=30, has_mask=True)
    mask = np.zeros((12, 9), np.uint8)
    mask[4:7, 2:4] = 1
    whole = solve(p, 5, 7, mask=mask).outputs
    half = msgspec.structs.replace(p, steps=15)
    start = solve(half, 7, 5, mask=mask).outputs["populations"]
    on = msgspec.structs.replace(half, has_start=True)
    inputs = {"mask": mask, "start": start}

    rest = run(WORKLOAD, on, inputs, (3, 9), variant="numpy")

    np.testing.assert_array_equal(rest.outputs["velocity"], whole["velocity"])
    assert (WORKLOAD.errors(on, inputs, rest.outputs, Rows(0, 12, 12), 0) <= 1).all()


def test_loops_are_compiled_where_no_folder_can_be_written(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    package = tmp_path / "hetsched_lbm"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(hetsched_lbm.__file__).parent, package, ignore=ignored)
    (package / "__pycache__").touch()  # stops root, too
    homes = dict.fromkeys(["HOME", "XDG_CACHE_HOME"], "/dev/null")
    environment = {**os.environ, **homes, "PYTHONPATH": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)
    subprocess.run(
        [sys.executable, "-c", "import hetsched_lbm.compiled"], env=environment, check=True
    )


def test_snapshots_are_those_of_one_run(tmp_path: Path) -> None:
    write(tmp_path, 25, 10, None, rows=10, cols=8, flow="cavity")

    names = [f"velocity-{steps:06}.npy" for steps in (10, 20, 25)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    whole = solve(LbmParams(10, 8, steps=25), variant=VARIANTS[0]).outputs["velocity"]
    np.testing.assert_allclose(np.load(tmp_path / names[-1]), whole, atol=1e-12)
