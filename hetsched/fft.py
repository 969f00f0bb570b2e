"""The functions of `scipy.fft`, divided over all devices.

``from hetsched import fft`` instead of ``from scipy import fft``: names, arguments, results and
errors are SciPy's. Transforms of integer, float32, float64, complex64 and complex128 arrays are
divided where it pays; everything else is SciPy's own. `stats` says what became of the calls.
"""

from __future__ import annotations

from typing import Any

import scipy.fft
from scipy.fft import *  # noqa: F403 - what isn't divided

from hetsched.functions import transforms
from hetsched.functions.session import calls

__all__ = ["stats"]
__all__ += scipy.fft.__all__

_library = transforms.Library("scipy.fft", transforms.on_one_core, transforms.scipys_own)


def _function(name: str) -> Any:
    function = transforms.divisible_transform(_library, name, transforms.originals[name])
    function.__module__ = __name__
    return function


fft, fft2, fftn = map(_function, ("fft", "fft2", "fftn"))
ifft, ifft2, ifftn = map(_function, ("ifft", "ifft2", "ifftn"))
rfft, rfft2, rfftn = map(_function, ("rfft", "rfft2", "rfftn"))
irfft, irfft2, irfftn = map(_function, ("irfft", "irfft2", "irfftn"))
hfft, hfft2, hfftn = map(_function, ("hfft", "hfft2", "hfftn"))
ihfft, ihfft2, ihfftn = map(_function, ("ihfft", "ihfft2", "ihfftn"))


def stats() -> dict[str, dict[str, int]]:
    """Return for each function how many of its calls were split, and why others weren't."""
    found: dict[str, dict[str, int]] = {}
    for name, what, row in calls.rows():
        if name in transforms.originals:
            found.setdefault(name, {})[what] = row.calls
    return found
