from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.fft
from fft_cases import FFT, VARIANTS, kernel, photograph

import hetsched
from hetsched.errors import DataError, UsageError

NAMES = {("c2c", "forward"): "fftn", ("c2c", "inverse"): "ifftn", ("r2c", "forward"): "rfftn",
         ("c2r", "forward"): "irfftn", ("c2r", "inverse"): "irfftn"}  # fmt: skip
SHAPES = (
    ("5x16", "1", "backward"),
    ("5x12x9", "-1", "ortho"),
    ("5x12x9", "1", "forward"),
    ("5x12x9", "2,1", "backward"),
    ("5x12x10", "1,2", "ortho"),
    ("3x4x6x5", "1,2,3", "ortho"),
    ("3x4x6x5", "1,3", "backward"),
    ("3x4x6x5", "-2", "forward"),
)


def data(p: Any) -> np.ndarray:
    x = np.empty((p.count, *p.shape), FFT.arrays(p)[0].dtype)
    FFT.generate(p, 1, "x", 0, x)
    return x


@pytest.mark.parametrize("library", [variant.name for variant in VARIANTS])
@pytest.mark.parametrize(("kind", "direction"), NAMES)
@pytest.mark.parametrize(("batch", "axes", "norm"), SHAPES)
def test_they_are_scipys(
    library: str, kind: str, direction: str, batch: str, axes: str, norm: str, tmp_path: Path
) -> None:
    values = {"batch": batch, "axes": axes, "kind": kind, "norm": norm, "direction": direction}
    p = FFT.infer({**values, "dtype": "complex128"}, {})
    x = data(p)
    given = x.copy()
    y = np.full((p.count, *p.output_shape), np.nan, FFT.arrays(p)[1].dtype)

    kernel(library, p, tmp_path)({"x": x}, {"y": y})

    transform = getattr(scipy.fft, NAMES[kind, direction])
    expected = transform(x, axes=tuple(map(int, axes.split(","))), norm=norm)
    assert y.dtype == expected.dtype
    assert np.allclose(y, expected, rtol=1e-12, atol=1e-12 * abs(expected).max())
    assert np.array_equal(x, given)


def test_photographs_are_transformed_and_come_back(tmp_path: Path) -> None:
    x = np.ascontiguousarray(photograph().reshape(-1, 64, 512))
    with hetsched.Local(learn=False) as local:
        there = local.submit("fft", x, kind="r2c", verify=True).result(timeout=120)
        back = local.submit("fft", there, kind="c2r", verify=True).result(timeout=120)

    assert np.allclose(there, scipy.fft.rfft2(x), rtol=1e-3, atol=1e-6 * abs(there).max())
    assert np.allclose(back, x, atol=1e-3)


def test_speeds_of_each_kind_are_learnt_apart() -> None:
    changes: list[dict[str, str]] = [
        {}, {"kind": "r2c"}, {"kind": "c2r"}, {"norm": "ortho"}, {"axes": "1"}, {"axes": "2"}
    ]  # fmt: skip
    keys = {FFT.speed_key(FFT.infer({"batch": "4x8x8", **change}, {})) for change in changes}

    assert len(keys) == len(changes)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"axes": "0"}, "axes: 0, must be different ones from 1 to 2"),
        ({"axes": "1,-2"}, "must be different ones"),
        ({"axes": "x"}, "must be numbers"),
        ({"kind": "r2c", "direction": "inverse"}, "direction inverse: there is none of kind r2c"),
        ({"kind": "c2r", "batch": "4x8x1"}, "has one value in 4x8x1, needs 2"),
        ({"batch": "4x8"}, "COUNTxROWSxCOLS"),
    ],
)
def test_impossible_ones_are_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FFT.infer({"batch": "4x8x8", **values}, {})


def test_complex_input_has_no_real_transform() -> None:
    with pytest.raises(DataError, match="kind r2c takes real values"):
        FFT.infer({"kind": "r2c"}, {"x": ((4, 8, 8), "complex64")})
