"""Transforms by ducc0, where it is installed and has them; results go straight to their place."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

FORWARD = {None: 0, "backward": 0, "ortho": 1, "forward": 2}
"""ducc0's number of a norm: 0 nothing, 1 divide by the root of the size, 2 divide by it."""
INPUTS = {"fft": "c", "ifft": "c", "rfft": "f", "irfft": "c"}
"""Transform -> the kind of dtype that it takes here."""
INVERSE = {None: 2, "backward": 2, "ortho": 1, "forward": 0}


@functools.cache
def _ducc() -> Any:
    if importlib.util.find_spec("ducc0") is None:
        return None
    try:
        return importlib.import_module("ducc0").fft
    except Exception:  # it is broken; SciPy computes alone
        return None


def ducc_function(
    name: str, x: np.ndarray, keywords: Mapping[str, Any]
) -> Callable[[np.ndarray, np.ndarray], object] | None:
    """Return what computes a transform of blocks of `x` by ducc0: (block, out); None: it can't.

    `keywords`: those of SciPy's function.
    """
    ducc, kind = _ducc(), name.rstrip("2n")
    if ducc is None or keywords.get("s", keywords.get("n")) is not None:
        return None
    if INPUTS.get(kind) != x.dtype.kind:
        return None
    axes = keywords["axes"] if "axes" in keywords else (keywords["axis"],)
    is_forward = not kind.startswith("i")
    inorm = (FORWARD if is_forward else INVERSE)[keywords["norm"]]
    options: dict[str, Any] = {"axes": axes, "forward": is_forward, "inorm": inorm, "nthreads": 1}
    if kind == "rfft":
        return lambda block, out: ducc.r2c(block, out=out, **options)
    if kind == "irfft":
        last = 2 * (x.shape[axes[-1]] - 1)
        if not last:
            return None
        return lambda block, out: ducc.c2r(block, out=out, lastsize=last, **options)
    return lambda block, out: ducc.c2c(block, out=out, **options)
