"""SciPy's own transforms, whatever takes their place later and whatever backend is set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.fft

originals = {name: getattr(scipy.fft, name) for name in scipy.fft.__all__}


def scipys_own(name: str, x: Any, keywords: Mapping[str, Any]) -> Any:
    """Call SciPy's implementation of a function."""
    with scipy.fft.set_backend("scipy", only=True):
        return originals[name](x, **keywords)


def on_one_core(name: str, x: np.ndarray, keywords: Mapping[str, Any]) -> Any:
    return scipys_own(name, x, {**keywords, "workers": 1})
